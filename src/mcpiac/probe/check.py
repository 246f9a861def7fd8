"""The last step of a chain: a real MCP request through the URL answers, and one without the token is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mcpiac.model.outcome import ProviderError
from mcpiac.model.secret import Secret
from mcpiac.probe.conversation import Conversation, NotMcp, Refused, RpcError, Unavailable

FIRST_WAIT, LONGEST_WAIT = 0.05, 1.0
"""Seconds between two tries while nothing answers; each wait is twice the one before."""


class McpProbe:
    """``mcpiac.model.ports.Probe`` over Streamable HTTP."""

    async def check(
        self, url: str, token: Secret | None, *, public: bool, timeout: float, progress: Callable[[str], None]
    ) -> str:
        """Returns a note such as ``14 tools``. Raises ``ProviderError``, always ``rejected``: every wait that could
        help was waited here, ``timeout`` seconds in all."""
        deadline = time.monotonic() + timeout
        wait = FIRST_WAIT
        while True:
            left = max(0.5, deadline - time.monotonic())
            try:
                async with asyncio.timeout(left):
                    count = await self._once(url, token, left)
                break
            except TimeoutError as fault:
                raise _silent("it took the request and says nothing", timeout) from fault
            except Unavailable as fault:
                if time.monotonic() + wait >= deadline:
                    raise _silent(str(fault), timeout) from fault
                progress(f"waits for an answer: {fault}")
                await asyncio.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)
        if not public:
            await _refuses_strangers(url)
        return "no tools" if count == 0 else f"{count} tool{'s' if count != 1 else ''}"

    async def _once(self, url: str, token: Secret | None, timeout: float) -> int:
        try:
            async with Conversation(url, token, timeout=timeout) as talk:
                await talk.open()
                return len(await talk.tools())
        except Refused as fault:
            raise ProviderError(
                "rejected",
                f"the URL refuses its own token (HTTP {fault.status})",
                code="own-token-refused",
                hint="The server itself may ask for a credential of its own: look at its documentation and its log.",
            ) from fault
        except RpcError as fault:
            raise ProviderError(
                "rejected",
                f"no MCP session could be opened: {fault}",
                code="mcp-error",
            ) from fault
        except NotMcp as fault:
            raise ProviderError(
                "rejected",
                f"something answered, but not in MCP: {fault}",
                code="not-mcp",
                output=fault.body,
                hint="Is `path` right, and `transport`? With `transport: stdio` the program must speak MCP on stdout "
                "and say everything else on stderr.",
            ) from fault


async def _refuses_strangers(url: str) -> None:
    try:
        status = await status_of(url, None)
    except Unavailable as fault:
        raise ProviderError(
            "rejected", f"a request without a token was not answered: {fault}", code="no-401"
        ) from fault
    if status != 401:
        raise ProviderError(
            "rejected",
            f"a request without a token got HTTP {status}; 401 was expected",
            code="no-401",
            hint="The URL may be open to anyone who can reach it. Take it down: `hosted: false`, and apply.",
        )


async def status_of(url: str, token: Secret | None, *, timeout: float = 20.0) -> int:
    """The HTTP status of one MCP request with this token or with none. Raises ``Unavailable``."""
    async with Conversation(url, token, timeout=timeout) as talk:
        return await talk.status()


def _silent(why: str, timeout: float) -> ProviderError:
    return ProviderError(
        "rejected",
        f"no answer through its URL within {timeout:.0f} s: {why}",
        code="server-silent",
        hint="A server that needs longer: `timeouts: {check: SECONDS}`.",
    )
