"""One HTTP client of the sandbox API: sends a request, repeats it where that is safe, and reads the answer.

Nothing here knows what a sandbox is for. A credential is never part of a message, a repr or a log line.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from mcpiac.model.secret import Secret
from mcpiac.providers.classify import (
    BAD_ANSWER,
    NO_ANSWER,
    NOT_SENT,
    Operation,
    Refusal,
    judge,
    kind,
    may_repeat,
    refusal,
)
from mcpiac.providers.redact import redact
from mcpiac.providers.spread import Spread
from mcpiac.wire import API_PREFIX, HEADER_ORG, HEADER_REQUEST_ID

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """Waiting times in seconds. ``attempts`` counts the first one. ``read`` is the time between two bytes."""

    attempts: int = 4
    base: float = 0.5
    longest: float = 8.0
    starting: float = 2.0
    restoring: float = 1.0
    connect: float = 10.0
    read: float = 60.0


LOCAL_PACE = Pace(base=0.05, longest=1.0, starting=0.1, restoring=0.1, connect=5.0)
"""Of a daemon on this machine."""


class Refused(Exception):
    """A request that was refused, on its way to being repeated or judged."""

    def __init__(self, told: Refusal) -> None:
        super().__init__(told.code)
        self.told = told


class Api:
    """The connection pool of one service. ``requests`` counts what was sent.

    ``socket``: a unix socket instead of ``address``. ``revive`` is awaited once, when nothing listens, before the
    request is sent again: it starts what should listen.
    """

    def __init__(
        self,
        address: str,
        *,
        socket: str | None = None,
        key: Secret | None = None,
        org: str | None = None,
        pace: Pace | None = None,
        revive: Callable[[], Awaitable[None]] | None = None,
        connections: int = 128,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.requests = 0
        self.address = address.rstrip("/")
        self._pace = pace = pace or Pace()
        self._key = key
        self._revive = revive
        self._sleep = sleep
        headers = {"Accept": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key.reveal()}"
        if org:
            headers[HEADER_ORG] = org
        self._client = httpx.AsyncClient(
            transport=_transport(socket, connections),
            headers=headers,
            timeout=httpx.Timeout(connect=pace.connect, read=pace.read, write=pace.read, pool=None),
            follow_redirects=False,
            trust_env=socket is None,
        )

    def __repr__(self) -> str:
        return f"Api({self.address!r})"

    async def close(self) -> None:
        await self._client.aclose()

    async def call(
        self,
        answer: TypeAdapter[T],
        method: str,
        path: str,
        *,
        operation: Operation,
        what: str,
        params: Mapping[str, str | int] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        read: float | None = None,
        secrets: tuple[str, ...] = (),
    ) -> T:
        """One call to its outcome: the parsed answer, or ``ProviderError``.

        ``what`` says in a few words what is asked, for messages. ``read`` lengthens the read timeout (seconds).
        ``secrets`` are values in the body that must never come back in a message.
        """

        lost = False

        async def once() -> T:
            nonlocal lost
            try:
                return await ask()
            except Refused as refused:
                lost = lost or kind(operation, refused.told) == "in_doubt"
                raise

        async def ask() -> T:
            request = self._request(method, path, params, json, headers, read)
            response = await self._send(request)
            if response.is_error or response.is_redirect:
                raise Refused(refusal(response.status_code, response.content, response.headers))
            try:
                return answer.validate_json(response.content)
            except ValidationError as fault:
                where = ".".join(str(part) for part in fault.errors(include_input=False)[0]["loc"])
                asked = response.headers.get(HEADER_REQUEST_ID, "")
                text = f"the answer cannot be read{f' ({where})' if where else ''}"
                raise Refused(Refusal(response.status_code, BAD_ANSWER, text, request_id=asked)) from None

        try:
            return await self._repeated(operation, once)
        except Refused as refused:
            fault = judge(operation, refused.told, what, self._hidden(secrets))
            if lost:
                # An earlier attempt may have had its effect, whatever the last one was told.
                fault.kind = "in_doubt"
            raise fault from None

    async def lines(
        self,
        line_of: TypeAdapter[T],
        method: str,
        path: str,
        *,
        operation: Operation,
        what: str,
        params: Mapping[str, str | int] | None = None,
        json: Any = None,
        read: float | None = None,
    ) -> AsyncIterator[T]:
        """The parsed lines of a streamed answer. It is repeated only before its first byte; later, a cut is an error.

        ``read`` may be infinite: a stream that is followed may be silent for long.
        """

        async def once() -> httpx.Response:
            request = self._request(method, path, params, json, None, read)
            response = await self._send(request, stream=True)
            if response.is_error or response.is_redirect:
                try:
                    body = await response.aread()
                finally:
                    await response.aclose()
                raise Refused(refusal(response.status_code, body, response.headers))
            return response

        try:
            response = await self._repeated(operation, once)
        except Refused as refused:
            raise judge(operation, refused.told, what, self._hidden(())) from None
        try:
            async for line in response.aiter_lines():
                if line.strip():
                    yield line_of.validate_json(line)
        except ValidationError:
            told = Refusal(0, BAD_ANSWER, "a line of the answer cannot be read")
            raise judge(operation, told, what, self._hidden(())) from None
        except httpx.TransportError as fault:
            told = Refusal(0, NO_ANSWER, f"the connection ended in the middle of the answer ({_name(fault)})")
            raise judge(operation, told, what, self._hidden(())) from None
        finally:
            await response.aclose()

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None,
        json: Any,
        headers: Mapping[str, str] | None,
        read: float | None,
    ) -> httpx.Request:
        request = self._client.build_request(
            method, f"{self.address}{path}", params=params, json=json, headers=dict(headers or {})
        )
        if read is not None:
            longer = None if math.isinf(read) else max(read, self._pace.read)
            request.extensions["timeout"] = {**request.extensions["timeout"], "read": longer}
        return request

    async def _send(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        self.requests += 1
        try:
            return await self._client.send(request, stream=stream)
        except (httpx.ConnectError, httpx.ConnectTimeout) as fault:
            if self._revive is None:
                raise Refused(Refusal(0, NOT_SENT, f"cannot reach {self.address}: {self._why(fault)}")) from None
        except httpx.TransportError as fault:
            raise Refused(Refusal(0, NO_ANSWER, f"no answer from {self.address}: {self._why(fault)}")) from None
        await self._revive()
        try:
            return await self._client.send(request, stream=stream)
        except (httpx.ConnectError, httpx.ConnectTimeout) as fault:
            raise Refused(Refusal(0, NOT_SENT, f"cannot reach {self.address}: {self._why(fault)}")) from None
        except httpx.TransportError as fault:
            raise Refused(Refusal(0, NO_ANSWER, f"no answer from {self.address}: {self._why(fault)}")) from None

    async def _repeated(self, operation: Operation, once: Callable[[], Awaitable[T]]) -> T:
        try:
            return await once()
        except Refused as refused:
            # Nearly every request goes well: what follows is set up only for one that did not.
            failed = [refused]

        async def next_one() -> T:
            if failed:
                raise failed.pop()
            return await once()

        def again(fault: BaseException) -> bool:
            return isinstance(fault, Refused) and may_repeat(operation, fault.told)

        def note(state: RetryCallState) -> None:
            fault = state.outcome.exception() if state.outcome else None
            if isinstance(fault, Refused):
                _log.debug("%s, attempt %d: sent again", redact(fault.told.code), state.attempt_number)

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._pace.attempts),
            wait=self._wait,
            retry=retry_if_exception(again),
            before_sleep=note,
            sleep=self._sleep,
            reraise=True,
        )
        return await retrying(next_one)

    def _wait(self, state: RetryCallState) -> float:
        """The service's own wish, else a random part of a doubling time."""
        fault = state.outcome.exception() if state.outcome else None
        if not isinstance(fault, Refused):
            return 0.0
        if fault.told.retry_after is not None:
            return fault.told.retry_after
        ceiling = min(self._pace.longest, self._pace.base * 2 ** (state.attempt_number - 1))
        least = {
            "sandbox_starting": self._pace.starting,
            "sandbox_direct_failed": self._pace.restoring,
            "idempotency_in_progress": self._pace.restoring,
        }.get(fault.told.code, 0.0)
        return max(random.uniform(0, ceiling), least)  # jitter

    def _hidden(self, secrets: tuple[str, ...]) -> tuple[str, ...]:
        return (*secrets, self._key.reveal()) if self._key is not None else secrets

    def _why(self, fault: httpx.TransportError) -> str:
        return redact(str(fault) or _name(fault), self._hidden(()))


def _transport(socket: str | None, connections: int) -> httpx.AsyncBaseTransport | None:
    """None where the environment names a proxy: then httpx's own."""
    if socket is None and urllib.request.getproxies():
        return None
    trust = httpx.create_ssl_context() if socket is None else False
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=30)
    return Spread(lambda: httpx.AsyncHTTPTransport(verify=trust, uds=socket, limits=limits), connections)


def _name(fault: Exception) -> str:
    return type(fault).__name__


def segment(text: str | int) -> str:
    """One piece of a path: an id from outside can hold anything."""
    return quote(str(text), safe="")


def base(address: str) -> str:
    """The API's address with its prefix, whether that was given with it or not."""
    clean = address.rstrip("/")
    return clean if clean.endswith(API_PREFIX) else clean + API_PREFIX
