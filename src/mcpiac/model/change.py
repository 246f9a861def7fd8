"""What differs, and why: the reader's half of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["noop", "create", "update", "replace", "delete", "move", "forget", "blocked"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs. ``path`` as in the stack file (``env.LOG_LEVEL``, ``files./home/user/a``).

    For a ``secret`` both sides are None: only that it changed is ever shown. ``drift``: live differs, not the file.
    """

    path: str
    before: Any = None
    after: Any = None
    secret: bool = False
    drift: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """All that differs for one server. ``reason`` explains and never steers.

    ``drift`` True: live differs from recorded though nobody changed the file (fields may mix both).
    ``moved_from`` names the old server of a move.
    """

    server: str
    kind: Kind
    reason: str = ""
    fields: tuple[FieldChange, ...] = ()
    drift: bool = False
    moved_from: str | None = None
