"""Runs a plan: every action that is ready, chains side by side, each journaled before and after its call."""

from __future__ import annotations

import asyncio
import logging
import random as system_random
from collections.abc import Callable, Mapping, Sequence

from mcpiac.executor.act import Outcome, act
from mcpiac.executor.effects import Traces
from mcpiac.executor.redact import Redactor
from mcpiac.executor.schedule import Schedule, Skipped
from mcpiac.executor.step import Tools
from mcpiac.executor.stop import Stop
from mcpiac.model.action import Action
from mcpiac.model.address import Address
from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.event import ActionFailed, ActionSkipped, Event, RunFinished, RunStarted
from mcpiac.model.plan import Plan
from mcpiac.model.ports import Clock, Emit, Journal, JournalFailed, Materials, Probe, Provider
from mcpiac.model.secret import Secret

_log = logging.getLogger(__name__)

INTERRUPTED = "interrupted"

PACE = 0.002
"""Seconds between two starts where several are ready. Started all at once, a hundred chains would stay in step: all
wait for the service at one time, and all want the processor at another."""


async def execute(
    plan: Plan,
    *,
    provider: Provider,
    secrets: Mapping[str, Mapping[str, Secret]],
    journal: Journal,
    probe: Probe,
    emit: Emit,
    materials: Materials,
    parallelism: int,
    stop: Stop,
    clock: Clock,
    traces: Mapping[str, Traces] | None = None,
    others: Mapping[str, Provider] | None = None,
    random: Callable[[], float] = system_random.random,
) -> RunFinished:
    """Do what a plan says, and say how it went: the answer is the last event too.

    ``secrets``: server → NAME → value, for all that the actions send. ``traces`` are the fingerprints of these very
    values, where they were made after the plan. ``others``: instance id → provider, for actions on sandboxes of
    another one. ``parallelism`` bounds the actions that run at a time. What the journal's state lists as done for
    this plan is not done again. Call ``recover`` before it.

    Raises ``JournalFailed`` when a line could not be written: every call under way is dropped (its entry stays open)
    and none is made after it. Any other exception is a bug; it is raised after what runs has ended.
    """
    run = _Run(plan, journal, emit, max(1, parallelism), stop, clock)
    known = [secret for named in secrets.values() for secret in named.values()]
    tools = Tools(
        plan=plan,
        provider=provider,
        secrets=secrets,
        traces=traces,
        journal=journal,
        probe=probe,
        materials=materials,
        others=others or {},
        clock=clock,
        random=random,
        stop=stop,
        redactor=Redactor(known),
        guard=run.guard,
        tokens={},
        in_doubt={e.action.server: e.number for e in journal.state.open if e.action.verb == "create"},
    )
    return await run.go(tools)


class Halted(Exception):
    """Raised in place of a call once nothing more may be sent."""


class _Run:
    def __init__(self, plan: Plan, journal: Journal, emit: Emit, parallelism: int, stop: Stop, clock: Clock) -> None:
        before = journal.state.plan
        self._plan = plan
        self._journal = journal
        self._emit_to = emit
        self._free = parallelism
        self._stop = stop
        self._clock = clock
        self._schedule = Schedule(plan.actions, before.done if before and before.id == plan.id else ())
        self._running: dict[asyncio.Task[None], Action] = {}
        self._fault: BaseException | None = None
        self._changed = asyncio.Event()
        self._done = self._failed = self._skipped = 0

    def guard(self) -> None:
        """Asked before every call."""
        if isinstance(self._fault, JournalFailed):
            raise Halted

    async def go(self, tools: Tools) -> RunFinished:
        began, stack = self._clock.monotonic(), self._plan.stack
        self._emit(RunStarted(stack, self._plan.id, tuple(self._schedule.rest()), self._clock.now()))
        at_once = asyncio.ensure_future(self._stop.wait_at_once())
        at_once.add_done_callback(lambda _: self._changed.set())
        try:
            while True:
                self._start_one(tools)
                if not self._running:
                    break
                if self._may_start:
                    await self._clock.sleep(PACE)
                else:
                    self._changed.clear()
                    await self._changed.wait()
                if at_once.done() or isinstance(self._fault, JournalFailed):
                    break
        finally:
            at_once.cancel()
            await self._drop()
            await self._journal.settle()
        if self._fault is not None:
            raise self._fault
        for action in self._schedule.rest():
            self._skip(action, INTERRUPTED)
        finished = RunFinished(
            stack,
            self._done,
            self._failed,
            self._skipped,
            self._stop.draining,
            self._clock.monotonic() - began,
            self._clock.now(),
        )
        self._emit(finished)
        return finished

    @property
    def _may_start(self) -> bool:
        """Whether an action may start now."""
        return bool(self._free) and self._fault is None and not self._stop.draining and self._schedule.ready

    def _start_one(self, tools: Tools) -> None:
        """Start the next action, if one may start."""
        action = self._schedule.take() if self._may_start else None
        if action is None:
            return
        self._free -= 1
        task = asyncio.ensure_future(self._one(tools, action))
        self._running[task] = action
        task.add_done_callback(self._ended)

    async def _one(self, tools: Tools, action: Action) -> None:
        freed = False
        given_up: list[Skipped] = []

        def released(outcome: Outcome) -> None:
            nonlocal freed
            freed = True
            self._free += 1
            given_up.extend(self._settle(action, outcome))
            self._changed.set()

        try:
            await act(tools, action, self._emit, released)
        finally:
            if not freed:
                self._free += 1
            # Only now: a reader hears of the failure first, then of what it has cost.
            for skipped in given_up:
                self._skip(skipped.action, f"{skipped.because.id} failed")

    def _settle(self, action: Action, outcome: Outcome) -> Sequence[Skipped]:
        """What is not tried any more because of it."""
        if outcome.diagnostic is None:
            self._schedule.done(action)
            self._done += 1
            return ()
        self._failed += 1
        return self._schedule.failed(action)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        fault = None if task.cancelled() else task.exception()
        # A journal that failed says more than what failed because of it.
        telling = fault is not None and not isinstance(fault, Halted)
        if telling and (self._fault is None or isinstance(fault, JournalFailed)):
            self._fault = fault
        self._changed.set()

    async def _drop(self) -> None:
        """End what runs, at once: its entries stay open, and the next run finds out."""
        while self._running:
            for task, action in list(self._running.items()):
                if task.cancel():
                    self._drop_one(action)
            await asyncio.wait(list(self._running))

    def _drop_one(self, action: Action) -> None:
        if action.id not in {one.id for one in self._schedule.rest()}:
            return
        for skipped in self._schedule.failed(action):
            self._skip(skipped.action, INTERRUPTED)
        self._failed += 1
        summary = f"{action.verb}: stopped while it ran"
        finding = Diagnostic(
            "error",
            "interrupted",
            summary,
            detail="whether it happened is not known; the next run finds out before it does anything else",
            address=str(Address(self._plan.stack, action.server)),
            hint="run `mcpiac apply` again",
        )
        self._emit(ActionFailed(self._plan.stack, action, 0.0, finding, True, self._clock.now()))

    def _skip(self, action: Action, because: str) -> None:
        self._skipped += 1
        self._emit(ActionSkipped(self._plan.stack, action, because, self._clock.now()))

    def _emit(self, event: Event) -> None:
        """Events may be lost, a run may not: a renderer that fails is no reason to stop."""
        try:
            self._emit_to(event)
        except Exception:
            _log.exception("an event could not be shown")
