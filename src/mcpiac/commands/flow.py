"""How apply and destroy go: lock, read, recover, plan, show, ask, execute, write, tell. No word about servers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcpiac.commands import view
from mcpiac.commands.choose import choose
from mcpiac.commands.held import Held, held
from mcpiac.commands.saved import stale, still_fits
from mcpiac.model.diagnostic import Diagnosed, Diagnostic
from mcpiac.ui import diagnostics, json_lines, progress, report, text
from mcpiac.ui.words import count

if TYPE_CHECKING:
    from mcpiac.commands.context import Context
    from mcpiac.model.event import Event, RunFinished
    from mcpiac.model.plan import Plan, PlanOptions
    from mcpiac.model.ports import Materials
    from mcpiac.ui.screen import Screen


@dataclass(frozen=True, slots=True)
class Manner:
    """How a run goes, as typed. ``again`` is the command that goes on after a failure."""

    command: str
    again: str
    yes: bool
    as_json: bool
    at_once: int


def run(context: Context, manner: Manner, names: Sequence[str], options: PlanOptions) -> int:
    """Plan the stacks anew and carry it out."""
    from mcpiac.state.store import Store

    project = context.project()
    store = Store(project.root / "state")
    choice = choose(project, store, names, destroy=options.destroy)
    with held(context, manner.command, project, store, {c.name: None for c in choice.chosen}) as hands:
        places = {c.name: view.provider_name(c, hands.states[c.name]) for c in choice.chosen}
        hands.connect({name: place for name, place in places.items() if place is not None})
        plans, findings = hands.plans(choice, options)
        return _carry_out(hands, plans, [*choice.findings, *findings], manner)


def run_saved(context: Context, manner: Manner, file: str, plans: Sequence[Plan]) -> int:
    """Carry out plans that were made earlier, if all is still as it was when they were made."""
    from mcpiac.state.store import Store

    project = context.project()
    store = Store(project.root / "state")
    with held(context, manner.command, project, store, {plan.stack: plan.lineage for plan in plans}) as hands:
        for plan in plans:
            still_fits(plan, hands.states[plan.stack], file)
        hands.connect({plan.stack: plan.provider for plan in plans})
        findings: list[Diagnostic] = []
        if any(state.open for state in hands.states.values()):
            findings = hands.recover(hands.look(), {})
        for plan in plans:
            _same_instance(hands, plan, file)
            _same_secrets(hands, plan, file)
            findings += _going_on(hands, plan)
        return _carry_out(hands, plans, findings, manner)


def _going_on(hands: Held, plan: Plan) -> list[Diagnostic]:
    """A saved plan that an earlier run began is not done twice."""
    begun = hands.states[plan.stack].plan
    done = len(set(begun.done) & {a.id for a in plan.actions}) if begun is not None and begun.id == plan.id else 0
    if not done:
        return []
    said = f"{plan.stack}: {done} of {count(len(plan.actions), 'action')} were done before; the rest is left"
    return [Diagnostic("note", "plan-goes-on", said)]


def _same_instance(hands: Held, plan: Plan, file: str) -> None:
    with view.told(f"the provider {plan.provider}"):
        now = hands.loop.run(hands.providers[plan.provider].instance())
    if plan.instance is not None and now != plan.instance:
        raise stale(plan, file, f"it was made for {plan.instance.id}, and this is {now.id}")


def _same_secrets(hands: Held, plan: Plan, file: str) -> None:
    """A secret whose value has changed since makes another plan."""
    found = hands.resolve(plan.stack, plan.lineage, view.Wanted({n: s.secrets for n, s in plan.desired.items()}))
    for server, names in plan.fingerprints.items():
        for name, trace in names.items():
            now = found.traces.get(server, {}).get(name)
            if now is not None and now.key_id == trace.key_id and now.mac != trace.mac:
                raise stale(plan, file, f"the value of {server}'s secret {name} has changed since")


def _carry_out(hands: Held, plans: Sequence[Plan], findings: Sequence[Diagnostic], manner: Manner) -> int:
    screen = hands.context.screen
    from mcpiac.providers import registry

    told = [note for session in hands.sessions.values() for note in session.notes]
    told += [notice for name in hands.providers for notice in registry.notices(name)]
    _show(screen, plans, [*told, *findings], manner)
    if any(p.errors for p in plans) or any(one.severity == "error" for one in findings):
        return 1
    pending = [p for p in plans if p.pending]
    if not pending:
        return 0
    _need_secrets(hands, pending)
    if not manner.yes and not _agreed(screen, pending, manner):
        return 1
    began = time.monotonic()
    tallies = [report.Tally(p) for p in pending]
    code = 0
    for tally in tallies:
        code = max(code, _execute(hands, tally, manner))
        if code == 130:
            break
    _tell(hands, tallies, time.monotonic() - began, manner)
    return code


def _show(screen: Screen, plans: Sequence[Plan], findings: Sequence[Diagnostic], manner: Manner) -> None:
    if manner.as_json:
        for plan in plans:
            screen.result(json_lines.plan(plan))
        for each in findings:
            screen.result(json_lines.diagnostic(each))
        return
    shown = text.joined([text.plan(p, screen.colour_out) for p in plans])
    totals = text.totals(plans)
    screen.result(shown or "Nothing is declared and nothing is recorded.")
    if totals:
        screen.result(f"\n{totals}")
    # An unset secret is a note of a plan; here it is an error, told when the actions need it.
    told = [*findings, *(d for p in plans for d in p.diagnostics if d.code != "secret-unset")]
    if told:
        failed = any(d.severity == "error" for d in told)
        closing = "nothing was changed" if failed else ""
        screen.tell("\n" + diagnostics.render(told, screen.colour_err, closing))


def _need_secrets(hands: Held, plans: Sequence[Plan]) -> None:
    """Every secret that the actions send has its value, or ``Diagnosed`` with each that has none."""
    faults: list[Diagnostic] = []
    for plan in plans:
        found = hands.secrets[plan.stack]
        for action in plan.actions:
            missing = [n for n in action.payload.get("secrets", ()) if n not in found.values.get(action.server, {})]
            if missing:
                faults += [d for d in found.faults.get(action.server, []) if d.severity == "error"]
    if faults:
        raise Diagnosed(*faults)


def _agreed(screen: Screen, plans: Sequence[Plan], manner: Manner) -> bool:
    actions = count(sum(len(p.actions) for p in plans), "action")
    if not screen.asks:
        hint = (
            f"`{manner.again} -y` does it; `mcpiac plan --out FILE` and `mcpiac apply FILE -y` do what was looked at."
        )
        said = f"{actions} wait for a yes, and there is no terminal to ask on; nothing was changed"
        raise Diagnosed(Diagnostic("error", "needs-confirmation", said, hint=hint))
    screen.err.write(f"\n{manner.command.capitalize()}: {actions}. Go on? Only `yes` does: ")
    screen.err.flush()
    try:
        answer = input().strip()
    except EOFError:
        answer = ""
    if answer == "yes":
        screen.tell("")
        return True
    screen.tell("Nothing was changed.")
    return False


def _execute(hands: Held, tally: report.Tally, manner: Manner) -> int:
    """One stack's run, and its snapshot. 0, 1 or 130."""
    from mcpiac.executor.clock import SystemClock
    from mcpiac.executor.run import execute
    from mcpiac.executor.stop import Stop
    from mcpiac.probe.check import McpProbe

    plan, screen = tally.plan, hands.context.screen
    session, found = hands.sessions[plan.stack], hands.secrets[plan.stack]
    stop = Stop()

    def gently() -> None:
        said = "stops at once" if stop.draining else "finishes what runs and begins nothing new; again: stops at once"
        screen.tell(f"Interrupted: {said}.")
        stop.request()

    traces = {server: {n: t for n, t in names.items() if t is not None} for server, names in found.traces.items()}
    with _rendering(screen, tally, manner) as emit:
        try:
            run = execute(
                plan,
                provider=hands.providers[plan.provider],
                secrets=found.values,
                journal=session.journal,
                probe=McpProbe(),
                emit=emit,
                materials=_materials(plan),
                parallelism=manner.at_once,
                stop=stop,
                clock=SystemClock(),
                traces=traces,
                others=hands.others(plan),
            )
            ended: RunFinished = hands.loop.run(run, gently)
        except Diagnosed as fault:
            tally.faults += fault.diagnostics
            return 1
        except KeyboardInterrupt:
            tally.cut = True
            return 130
    session.finish()
    return 130 if ended.interrupted else 1 if ended.failed or ended.skipped else 0


def _materials(plan: Plan) -> Materials:
    """What goes into guests and comes with this program; packed only for a plan that sets something up."""
    from mcpiac.model.ports import Materials

    if not any(action.verb == "exec" for action in plan.actions):
        return Materials(b"")
    from mcpiac.bridge.build import build_zipapp

    return Materials(build_zipapp())


@contextlib.contextmanager
def _rendering(screen: Screen, tally: report.Tally, manner: Manner) -> Iterator[progress.Renderer]:
    shown = progress.choose(screen, as_json=manner.as_json)
    guarded = progress.guarded(shown)

    def emit(event: Event) -> None:
        tally.take(event)
        guarded(event)

    try:
        yield emit
    finally:
        with contextlib.suppress(OSError):
            shown.close()


def _tell(hands: Held, tallies: Sequence[report.Tally], seconds: float, manner: Manner) -> None:
    screen = hands.context.screen
    with contextlib.suppress(BrokenPipeError):
        states = [hands.sessions[t.plan.stack].state for t in tallies]
        if manner.as_json:
            screen.result(json_lines.encode("finished", report.as_data(tallies, states, seconds)))
            return
        told = report.report(tallies, seconds, manner.again, screen.colour_out)
        if not all(t.well for t in tallies):
            screen.tell("\n" + told)
            return
        screen.result("\n" + told)
        urls = report.urls(states)
        if urls and manner.command == "apply":
            screen.result(f"\n{urls}\n\n{report.CONNECT}")
