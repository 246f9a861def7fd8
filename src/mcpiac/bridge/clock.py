"""The bridge's own time: it stands still while the bridge is frozen (a paused sandbox)."""

from __future__ import annotations

from collections.abc import Callable


class ActiveClock:
    """Seconds in which the bridge could run. A jump of `read` beyond `longest` seconds counts as that.

    Works when `now` is called at least every `longest` seconds while anything depends on time.
    """

    def __init__(self, read: Callable[[], float], longest: float = 3.0) -> None:
        self._read = read
        self._longest = longest
        self._last = read()
        self._now = 0.0

    def now(self) -> float:
        last, self._last = self._last, self._read()
        self._now += min(max(self._last - last, 0.0), self._longest)
        return self._now
