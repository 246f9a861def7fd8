"""When a sandbox is paused and when its time is up: pure, the clocks are given.

``wall`` is seconds since the epoch (deadlines mean it); ``boot`` is CLOCK_BOOTTIME, which no clock change moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FIRST_WAIT = 0.2
LONGEST_WAIT = 30.0
STEADY_SECONDS = 10.0
CRASHES = 5
"""After so many starts in a row that did not hold, the sandbox is in state ``error`` until it is resumed."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a sandbox. ``busy``: something awaits its answer, or a command runs in it."""

    up: bool
    paused: bool
    busy: bool
    deadline: float | None
    idle_seconds: float | None
    """None: never paused by itself."""
    active: float
    """``boot`` of the last activity."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is due now, and in how many seconds to look again (None: only when something changes)."""

    due: Literal["expire", "pause"] | None
    again: float | None


def decide(facts: Facts, *, wall: float, boot: float) -> Verdict:
    """A passed deadline comes before a pause; a paused sandbox expires too."""
    if not facts.up:
        return Verdict(None, None)
    waits: list[float] = []
    if facts.deadline is not None:
        if wall >= facts.deadline:
            return Verdict("expire", None)
        waits.append(facts.deadline - wall)
    if facts.idle_seconds is not None and not facts.paused:
        left = facts.active + facts.idle_seconds - boot
        if facts.busy:
            waits.append(facts.idle_seconds)
        elif left <= 0:
            return Verdict("pause", None)
        else:
            waits.append(left)
    return Verdict(None, min(waits) if waits else None)


def idle_in(facts: Facts, *, boot: float) -> int | None:
    """Whole seconds until it is paused if nothing happens; None when it will not be."""
    if not facts.up or facts.paused or facts.idle_seconds is None:
        return None
    if facts.busy:
        return round(facts.idle_seconds)
    return max(0, round(facts.active + facts.idle_seconds - boot))


@dataclass(slots=True)
class Restarts:
    """How long to wait before a sandbox that ended by itself is started again."""

    wait: float = FIRST_WAIT
    failures: int = 0

    def next(self, up_seconds: float) -> float | None:
        """Seconds to wait, or None: it is given up."""
        if up_seconds >= STEADY_SECONDS:
            self.wait, self.failures = FIRST_WAIT, 0
        self.failures += 1
        if self.failures > CRASHES:
            return None
        wait, self.wait = self.wait, min(self.wait * 2, LONGEST_WAIT)
        return wait
