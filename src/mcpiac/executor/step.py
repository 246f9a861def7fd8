"""One action while it runs: what its verb may use, and the one way in which a verb reaches the provider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from mcpiac.executor.effects import Records, Traces, Unrecorded, traces
from mcpiac.executor.redact import Redactor
from mcpiac.executor.retry import retrying
from mcpiac.executor.stop import Stop
from mcpiac.model.action import Action, Entry
from mcpiac.model.outcome import ProviderError
from mcpiac.model.plan import Plan
from mcpiac.model.ports import Clock, Journal, Materials, Probe, Provider
from mcpiac.model.record import Instance
from mcpiac.model.secret import Secret
from mcpiac.model.spec import ServerSpec
from mcpiac.wire import OWNER_VARIABLE

T = TypeVar("T")

DOUBTFUL = frozenset({"in_doubt", "transient", "conflict"})
"""Kinds after which a create may have happened all the same."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What all actions of a run share. ``traces``: of the values in ``secrets``, where they were made anew for this
    run. ``others``: instance id → a provider that is not the plan's own. ``random`` gives 0..1. ``guard`` raises when
    nothing more may be sent. ``tokens``: what hosting answered in this run, (sandbox id, port) → token. ``in_doubt``:
    server → the number of the open create that an earlier run left."""

    plan: Plan
    provider: Provider
    secrets: Mapping[str, Mapping[str, Secret]]
    traces: Mapping[str, Traces] | None
    journal: Journal
    probe: Probe
    materials: Materials
    others: Mapping[str, Provider]
    clock: Clock
    random: Callable[[], float]
    stop: Stop
    redactor: Redactor
    guard: Callable[[], None]
    tokens: dict[tuple[str, int], Secret | None]
    in_doubt: dict[str, int]


class Step:
    """One action. ``doubtful`` turns true once a call ended so that it may have had its effect."""

    def __init__(
        self, tools: Tools, action: Action, entry: Entry, progress: Callable[[str], None], again: Callable[..., None]
    ) -> None:
        self.tools = tools
        self.action = action
        self.payload: Mapping[str, Any] = action.payload
        self.entry = entry
        self.progress = progress
        self.doubtful = False
        self._again = again

    @property
    def spec(self) -> ServerSpec | None:
        """The effective spec of the action's server."""
        return self.tools.plan.desired.get(self.action.server)

    @property
    def wanted(self) -> ServerSpec:
        """The same, where the verb cannot do without."""
        if self.spec is None:
            raise Unrecorded(f"the plan does not hold the spec of {self.action.server}")
        return self.spec

    @property
    def now(self) -> Records:
        """The records as they are now."""
        journal = self.tools.journal
        return Records(journal.sandbox(self.action.sandbox), journal.server(self.action.server))

    @property
    def id(self) -> str:
        """The provider's id of the sandbox."""
        box = self.tools.journal.sandbox(self.action.sandbox)
        id = box.id if box is not None else self.action.target
        if id is None:
            raise Unrecorded(f"the sandbox {self.action.sandbox} is not recorded")
        return id

    @property
    def provider(self) -> Provider:
        """The plan's, or the one of the instance that the action names."""
        named = self.payload.get("instance")
        if named is None:
            return self.tools.provider
        other = self.tools.others.get(Instance(**named).id)
        if other is None:
            raise ProviderError(
                "rejected",
                f"the sandbox belongs to {named['provider']} ({named['id']}), which is not connected",
                hint=f"make {named['provider']} reachable (`mcpiac doctor`), then apply again",
            )
        return other

    @property
    def env(self) -> dict[str, Secret]:
        """The sandbox's whole environment, the owner marker included."""
        given = self.tools.secrets.get(self.action.server, {})
        missing = [name for name in self.payload["secrets"] if name not in given]
        if missing:
            raise ProviderError("rejected", f"no value for {', '.join(missing)}", hint="set it and apply again")
        env = {name: given[name] for name in self.payload["secrets"]}
        return {**env, OWNER_VARIABLE: Secret(self.payload["owner"])}

    @property
    def sent(self) -> Traces:
        """The traces of the secrets in ``env``."""
        made = self.tools.traces
        known = made.get(self.action.server, {}) if made is not None else traces(self.payload)
        return {name: known[name] for name in self.payload["secrets"] if name in known}

    async def call(self, call: Callable[[], Awaitable[T]], *, until: float | None = None) -> T:
        """The provider's answer, asked again by the table of ``retry``, but not after monotonic second ``until``."""
        tools = self.tools

        async def guarded() -> T:
            tools.guard()
            return await call()

        def again(attempt: int, wait: float, fault: ProviderError) -> None:
            self._again(attempt, wait, tools.redactor.text(str(fault)))

        def give_up() -> bool:
            return tools.stop.draining or (until is not None and tools.clock.monotonic() >= until)

        async def noting() -> T:
            try:
                return await guarded()
            except ProviderError as fault:
                self.doubtful = self.doubtful or fault.kind in DOUBTFUL
                raise

        return await retrying(noting, sleep=tools.clock.sleep, random=tools.random, give_up=give_up, again=again)
