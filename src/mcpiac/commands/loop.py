"""One event loop for a whole command, and what a signal does while it runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Loop:
    """Runs coroutines one after another on the same loop, so that connections live on between them.

    Where ``gently`` is given, the first two signals call it and a third cancels; else the first one does. A cancelled
    run raises ``KeyboardInterrupt``. Between runs (a question to the user) signals act as everywhere else.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None
    ) -> None:
        self._runner.__exit__(kind, fault, at)

    def run(self, work: Coroutine[Any, Any, T], gently: Callable[[], None] | None = None) -> T:
        """The coroutine's result."""
        loop = self._runner.get_loop()
        before = {number: signal.getsignal(number) for number in SIGNALS}
        interrupted = 0

        async def watched() -> T:
            task = asyncio.current_task()
            assert task is not None

            def caught() -> None:
                nonlocal interrupted
                interrupted += 1
                if interrupted <= 2 and gently is not None:
                    gently()
                else:
                    task.cancel()

            for number in SIGNALS:
                if before[number] is not signal.SIG_IGN:
                    loop.add_signal_handler(number, caught)
            return await work

        try:
            return self._runner.run(watched())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            for number in SIGNALS:
                if before[number] is not signal.SIG_IGN:
                    loop.remove_signal_handler(number)
                    signal.signal(number, before[number])
