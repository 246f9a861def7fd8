"""How a run is asked to end before its time."""

from __future__ import annotations

import asyncio


class Stop:
    """Asked once: no new action starts, running ones finish. Asked again: everything ends at once.

    ``request`` is called in the loop's thread, as asyncio's signal handlers are.
    """

    def __init__(self) -> None:
        self._draining = asyncio.Event()
        self._at_once = asyncio.Event()

    def request(self) -> None:
        """Ask; a second call asks harder."""
        if self._draining.is_set():
            self._at_once.set()
        self._draining.set()

    @property
    def draining(self) -> bool:
        """Whether it was asked for."""
        return self._draining.is_set()

    async def wait_draining(self) -> None:
        """Return once it was asked for."""
        await self._draining.wait()

    async def wait_at_once(self) -> None:
        """Return once it was asked for twice."""
        await self._at_once.wait()
