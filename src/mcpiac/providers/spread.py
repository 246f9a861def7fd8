"""Many connections at a small price: each behind a transport of its own, handed out last used first.

httpcore looks at every connection of a pool, twice, for each request: with a hundred connections that takes longer
than the request itself. A pool of one has nothing to look for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx


class Spread(httpx.AsyncBaseTransport):
    """At most ``most`` requests at a time; more wait. ``make`` makes a transport that holds one connection."""

    def __init__(self, make: Callable[[], httpx.AsyncBaseTransport], most: int) -> None:
        self._make = make
        self._free = asyncio.Semaphore(most)
        self._idle: list[httpx.AsyncBaseTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._free.acquire()
        one = self._idle.pop() if self._idle else self._make()
        try:
            answer = await one.handle_async_request(request)
        except BaseException:
            self._back(one)
            raise
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        answer.stream = _Returning(answer.stream, lambda: self._back(one))
        return answer

    async def aclose(self) -> None:
        idle, self._idle = self._idle, []
        for one in idle:
            await one.aclose()

    def _back(self, one: httpx.AsyncBaseTransport) -> None:
        self._idle.append(one)
        self._free.release()


class _Returning(httpx.AsyncByteStream):
    """An answer's body that gives its transport back once it is closed."""

    def __init__(self, inner: httpx.AsyncByteStream, back: Callable[[], None]) -> None:
        self._inner = inner
        self._back: Callable[[], None] | None = back

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            yield part

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            back, self._back = self._back, None
            if back is not None:
                back()
