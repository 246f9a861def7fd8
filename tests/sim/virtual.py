"""An event loop whose time is a number: sleeping costs nothing, and the order of things is decided by the seed."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import warnings
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = 1_796_000_000.0
"""Where the wall clock of a world begins (November 2026)."""


class Killed(BaseException):
    """The process is gone (``kill -9``, power loss): nothing of it runs any more."""


class Stuck(AssertionError):
    """Nothing is left to wait for, and the work is not done."""


class Clock:
    """Time of one world. ``skew`` is how far the wall clock was set wrong; monotonic time never jumps."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.skew = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return EPOCH + self.seconds

    def now(self) -> float:
        """The wall clock of the client, which may be wrong."""
        return EPOCH + self.seconds + self.skew

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Selector(selectors.SelectSelector):
    """Never waits: where the loop would, the clock moves. Counts rounds, and kills at one of them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.rounds = 0
        self.kill_at: int | None = None

    def select(self, timeout: float | None = None) -> Any:
        self.rounds += 1
        if self.kill_at is not None and self.rounds >= self.kill_at:
            raise Killed
        if timeout is None:
            raise Stuck("every task waits for another")
        if timeout > 0:
            self.clock.seconds += timeout
        return []


class Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        self.virtual = _Selector(clock)
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.clock.seconds


def die() -> None:
    """The process that runs in the current loop is gone: nothing else of it runs in this round or later."""
    loop = asyncio.get_event_loop_policy().get_event_loop()
    if isinstance(loop, Loop):
        loop.virtual.kill_at = 0
        loop._ready.clear()  # type: ignore[attr-defined]


def run(clock: Clock, work: Coroutine[Any, Any, T], kill_at: int | None = None) -> tuple[T, int]:
    """The result of ``work``, and how many rounds of the loop it took; ``Killed`` at round ``kill_at``."""
    loop = Loop(clock)
    loop.virtual.kill_at = kill_at
    loop.set_exception_handler(lambda _loop, _told: None)
    asyncio.set_event_loop(loop)
    task = loop.create_task(work)
    try:
        return loop.run_until_complete(task), loop.virtual.rounds
    finally:
        _bury(loop)
        asyncio.set_event_loop(None)
        loop.close()


def _bury(loop: Loop) -> None:
    """Tasks of a process that is gone: closed without running on."""
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        with contextlib.suppress(BaseException):
            coroutine = task.get_coro()
            if coroutine is not None:
                coroutine.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # coroutines that a killed process never began
        loop._ready.clear()  # type: ignore[attr-defined]
    loop._scheduled.clear()  # type: ignore[attr-defined]
