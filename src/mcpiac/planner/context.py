"""What every decision of one plan is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mcpiac.model.diagnostic import Diagnostic, Origin, Severity
from mcpiac.model.live import LiveView
from mcpiac.model.plan import PlanOptions
from mcpiac.model.record import Instance, SandboxRecord, ServerRecord, State
from mcpiac.model.spec import ServerSpec
from mcpiac.model.traits import Traits
from mcpiac.planner.choose import Names
from mcpiac.planner.look import Look
from mcpiac.planner.traces import Current


@dataclass(frozen=True, slots=True)
class Context:
    """The inputs of a plan. ``elsewhere``: sandbox key → the other provider that it belongs to; ``replaced``: the
    servers that ``--replace`` names; ``leftovers``: server → keys of its sandboxes that no server record points to
    (what an unfinished replace leaves)."""

    stack: str
    state: State
    live: LiveView
    traits: Traits
    options: PlanOptions
    fingerprints: Mapping[str, Current]
    now: datetime
    ids: Callable[[], str]
    names: Names
    origins: Mapping[str, Any]
    elsewhere: Mapping[str, Instance]
    replaced: frozenset[str]
    leftovers: Mapping[str, tuple[str, ...]]

    def diagnostic(
        self,
        severity: Severity,
        code: str,
        server: str,
        summary: str,
        *,
        key: str = "",
        detail: str = "",
        hint: str = "",
    ) -> Diagnostic:
        """A finding about one server, with the place in the stack file where ``key`` (or the server) is declared."""
        origin = self.origins.get(f"{server}.{key}") or self.origins.get(server)
        return Diagnostic(
            severity,
            code,
            summary,
            detail=detail,
            address=f"{self.stack}/{server}",
            origin=origin if isinstance(origin, Origin) else None,
            hint=hint,
        )


@dataclass(frozen=True, slots=True)
class Case:
    """One declared server beside its record. ``view`` is the recorded view of ``spec``.

    ``moved`` is the old name of a move that is still to be made: ``record`` is then the one under that name.
    """

    name: str
    spec: ServerSpec
    view: Mapping[str, Any]
    record: ServerRecord | None
    sandbox: SandboxRecord | None
    look: Look
    port: int
    moved: str | None = None

    @property
    def known(self) -> tuple[ServerRecord, SandboxRecord]:
        """Both records, where the case was found to have them."""
        if self.record is None or self.sandbox is None:
            raise ValueError(f"{self.name} is not recorded")
        return self.record, self.sandbox
