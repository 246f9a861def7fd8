"""A plan: what differs and the steps that mend it, as one value that can be saved and applied later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcpiac.model.action import Action
from mcpiac.model.change import Change
from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.record import Fingerprint, Instance
from mcpiac.model.spec import ServerSpec

PLAN_FORMAT = 1


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The flags that change what is planned; a saved plan keeps them."""

    destroy: bool = False
    renew: bool = False
    refresh_only: bool = False
    replace: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    overwrite_files: bool = False
    upgrade_guest: bool = False
    allow_gone: bool = False
    allow_empty: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """One stack's plan. ``fingerprints`` are those of the secrets as they were when the plan was made.

    ``desired`` holds the effective specs of the servers that the actions work on (file contents included, secrets by
    reference), so that a saved plan needs no stack file. ``created_at`` ISO 8601 UTC.
    """

    id: str
    stack: str
    provider: str
    lineage: str
    base_serial: int
    stack_digest: str
    created_at: str
    instance: Instance | None = None
    changes: tuple[Change, ...] = ()
    actions: tuple[Action, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    desired: Mapping[str, ServerSpec] = field(default_factory=dict)
    fingerprints: Mapping[str, Mapping[str, Fingerprint]] = field(default_factory=dict)
    options: PlanOptions = field(default_factory=PlanOptions)
    live_read: bool = True
    live_seconds: float = 0.0
    running: int = 0
    paused: int = 0
    format_version: int = PLAN_FORMAT

    @property
    def pending(self) -> bool:
        """Whether applying would change anything, the record included."""
        return bool(self.actions)

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """Findings that forbid an apply."""
        return tuple(d for d in self.diagnostics if d.severity == "error")
