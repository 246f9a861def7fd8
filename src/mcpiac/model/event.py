"""What a run tells while it runs. Events may be lost; the journal may not.

``RunStarted`` announces every action, so that a display knows its totals.
"""

from __future__ import annotations

from dataclasses import dataclass

from mcpiac.model.action import Action
from mcpiac.model.diagnostic import Diagnostic

EVENT_VERSION = 1


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The first event of a run over one stack."""

    stack: str
    plan: str
    actions: tuple[Action, ...]
    at: float


@dataclass(frozen=True, slots=True)
class ActionStarted:
    """An action's journal entry is durable and its call goes out. ``at`` is seconds since the epoch."""

    stack: str
    action: Action
    at: float


@dataclass(frozen=True, slots=True)
class ActionProgress:
    """A line of output of a long action, or how far it is."""

    stack: str
    action: Action
    text: str
    at: float


@dataclass(frozen=True, slots=True)
class ActionRetrying:
    """A call failed in a way that may pass; it is sent again after ``wait`` seconds."""

    stack: str
    action: Action
    attempt: int
    wait: float
    why: str
    at: float


@dataclass(frozen=True, slots=True)
class ActionDone:
    """It happened. ``seconds`` counts from its start."""

    stack: str
    action: Action
    seconds: float
    note: str
    at: float


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """It did not; what exists stays recorded. ``in_doubt``: the next run finds out whether it happened."""

    stack: str
    action: Action
    seconds: float
    diagnostic: Diagnostic
    in_doubt: bool
    at: float


@dataclass(frozen=True, slots=True)
class ActionSkipped:
    """It was not tried because of an earlier one, or of an interrupt."""

    stack: str
    action: Action
    because: str
    at: float


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last event. Counts are of actions."""

    stack: str
    done: int
    failed: int
    skipped: int
    interrupted: bool
    seconds: float
    at: float


Event = (
    RunStarted
    | ActionStarted
    | ActionProgress
    | ActionRetrying
    | ActionDone
    | ActionFailed
    | ActionSkipped
    | RunFinished
)
