"""Real time, for runs outside of a simulation."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """``model.ports.Clock`` of this machine."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Let others run for that long."""
        await asyncio.sleep(seconds)
