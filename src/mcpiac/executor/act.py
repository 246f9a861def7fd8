"""One action from its begin to its end: journal, call, journal, event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from mcpiac.executor import effects, told
from mcpiac.executor.step import Step, Tools
from mcpiac.executor.verbs import VERBS, HalfDone
from mcpiac.model.action import Action, Entry
from mcpiac.model.diagnostic import Diagnosed, Diagnostic
from mcpiac.model.event import ActionDone, ActionFailed, ActionProgress, ActionRetrying, ActionStarted, Event
from mcpiac.model.outcome import ProviderError
from mcpiac.model.ports import JournalFailed
from mcpiac.model.record import Effect

TAINTING = frozenset({"exec", "check"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended: well when ``diagnostic`` is None."""

    diagnostic: Diagnostic | None = None


async def act(
    tools: Tools, action: Action, emit: Callable[[Event], None], released: Callable[[Outcome], None]
) -> None:
    """Run one action. ``released`` is told the outcome as soon as the end is on its way into the journal: what
    comes after it there is durable only together with it, so a chain need not wait. Raises ``JournalFailed``."""
    stack, clock = tools.plan.stack, tools.clock
    entry = await _begin(tools, action)
    began = clock.monotonic()
    emit(ActionStarted(stack, action, clock.now()))

    def progress(text: str) -> None:
        emit(ActionProgress(stack, action, tools.redactor.text(text), clock.now()))

    def again(attempt: int, wait: float, why: str) -> None:
        emit(ActionRetrying(stack, action, attempt, wait, why, clock.now()))

    step = Step(tools, action, entry, progress, again)
    try:
        happened = await VERBS[action.verb](step)
    except HalfDone as fault:
        await _failed(step, fault.cause, emit, released, began, half=fault.effect)
    except ProviderError as fault:
        await _failed(step, fault, emit, released, began)
    except JournalFailed:
        raise
    except Diagnosed as fault:
        await _close(step, emit, released, began, told.refusal(stack, action, fault, tools.redactor), effects.NOTHING)
    else:
        durable = tools.journal.end(step.entry, ok=True, effect=happened.effect, note=happened.note)
        released(Outcome())
        await durable
        note = tools.redactor.text(happened.note)
        emit(ActionDone(stack, action, clock.monotonic() - began, note, clock.now()))


async def _begin(tools: Tools, action: Action) -> Entry:
    at = datetime.fromtimestamp(tools.clock.now(), UTC).isoformat(timespec="milliseconds")
    # A create that an earlier run left in doubt, and that recovery did not find, becomes this one: with the same key
    # if what is asked for is the same, else under a new one.
    creates = action.verb == "create"
    takes = tools.in_doubt.pop(action.server, None) if creates else None
    instance = tools.plan.instance if creates else None
    return await tools.journal.begin(action, plan=tools.plan.id, at=at, takes=takes, instance=instance)


async def _failed(
    step: Step,
    fault: ProviderError,
    emit: Callable[[Event], None],
    released: Callable[[Outcome], None],
    began: float,
    half: Effect | None = None,
) -> None:
    tools, action = step.tools, step.action
    doubt = action.verb == "create" and half is None and (step.doubtful or fault.kind == "in_doubt")
    effect = half if half is not None else effects.NOTHING
    if action.verb in TAINTING and half is None:
        effect = effects.tainted(action, step.now, tools.redactor.text(f"{action.verb}: {fault.message}"))
    box = next((box for box in effect.sandboxes.values() if box is not None), None) or step.now.sandbox
    kept = box.id if box is not None and action.verb != "delete" else None
    finding = told.failure(tools.plan.stack, action, fault, tools.redactor, kept, in_doubt=doubt)
    if not doubt:
        await _close(step, emit, released, began, finding, effect)
        return
    # The entry stays open: the next run finds out whether there is a sandbox.
    released(Outcome(finding))
    clock = tools.clock
    emit(ActionFailed(tools.plan.stack, action, clock.monotonic() - began, finding, True, clock.now()))


async def _close(
    step: Step,
    emit: Callable[[Event], None],
    released: Callable[[Outcome], None],
    began: float,
    finding: Diagnostic,
    effect: Effect,
) -> None:
    tools, clock = step.tools, step.tools.clock
    durable = tools.journal.end(step.entry, ok=False, effect=effect, note=finding.code)
    released(Outcome(finding))
    await durable
    emit(ActionFailed(tools.plan.stack, step.action, clock.monotonic() - began, finding, False, clock.now()))
