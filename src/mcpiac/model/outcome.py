"""How a step ended, and how a provider says no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcpiac.model.diagnostic import Diagnostic

ErrorKind = Literal["transient", "throttled", "conflict", "not_found", "rejected", "unauthorised", "in_doubt"]


class ProviderError(Exception):
    """A provider call that did not end well; ``kind`` alone decides about retries (``executor/retry.py``).

    - ``transient``: it had no effect, or the call may be repeated freely; try again
    - ``throttled``: the same, after ``retry_after`` seconds
    - ``conflict``: the sandbox is in a state that forbids this now
    - ``not_found``: 404 for the thing itself
    - ``rejected``: the input is wrong; repeating never helps
    - ``unauthorised``: the credential is missing, wrong or too weak
    - ``in_doubt``: it may or may not have happened

    ``message`` may quote the service; it never holds a credential or a token. ``hint`` says what to type next.
    ``output`` holds the last lines of a failed command.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        code: str = "",
        status: int = 0,
        request_id: str = "",
        retry_after: float | None = None,
        hint: str = "",
        output: str = "",
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message
        self.code = code
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after
        self.hint = hint
        self.output = output

    def __str__(self) -> str:
        asked = f" [request {self.request_id}]" if self.request_id else ""
        return f"{self.message}{asked}"


@dataclass(frozen=True, slots=True)
class Done:
    """It happened (or was so already)."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """It did not happen, and why."""

    diagnostic: Diagnostic


@dataclass(frozen=True, slots=True)
class InDoubt:
    """It may have happened: the journal entry stays open and the next run finds out."""

    diagnostic: Diagnostic


@dataclass(frozen=True, slots=True)
class Skipped:
    """It was not tried, because of ``because`` (an action id, or ``interrupted``)."""

    because: str


Outcome = Done | Failed | InDoubt | Skipped
