"""``mcpiac plan``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mcpiac.commands import flags
from mcpiac.model.diagnostic import error

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from pathlib import Path

    from mcpiac.commands.context import Context
    from mcpiac.model.diagnostic import Diagnostic
    from mcpiac.model.live import LiveView
    from mcpiac.model.plan import Plan
    from mcpiac.model.record import State

EXAMPLES = ("mcpiac plan", "mcpiac plan demo --out demo.plan && mcpiac apply demo.plan")


def configure(parser: ArgumentParser) -> None:
    flags.stacks(parser)
    flags.planning(parser)
    parser.add_argument("--destroy", action="store_true", help="plan to take everything down")
    flags.refresh_only(parser)
    parser.add_argument("--no-refresh", action="store_true", help="do not ask what is live; then nothing is drift")
    parser.add_argument("--deep", action="store_true", help="(comes with a later version)")
    parser.add_argument("--untrusted", action="store_true", help="for a pull request from anywhere: read no secret, "
                        "start nothing, ask nobody")  # fmt: skip
    parser.add_argument("--state", metavar="FILE", help="plan against this copy of a state (with --untrusted)")
    parser.add_argument("--out", metavar="FILE", help="keep the plan, for `mcpiac apply FILE`")
    parser.add_argument("--detailed-exitcode", action="store_true", help="exit 2 when changes are pending")
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text", help="(default: text)")
    parser.add_argument("--json", action="store_true", help="the same as --format json")


def run(args: Namespace, context: Context) -> int:
    if args.deep:
        raise error("later", "`--deep` comes with a later version")
    if args.state and not args.untrusted:
        raise error("usage", "plan: --state goes with --untrusted")
    if args.refresh_only and args.destroy:
        raise error("usage", "plan: --refresh-only and --destroy exclude each other")
    form = "json" if args.json else args.format
    plans, notes = _plan(args, context)
    failed = any(p.errors for p in plans)
    if args.out and not failed:
        from mcpiac.commands.saved import save
        from mcpiac.commands.version import number

        save(context.cwd / args.out, plans, number())
    _show(context, plans, notes, form, args)
    if failed:
        return 1
    return 2 if args.detailed_exitcode and any(p.pending for p in plans) else 0


def _plan(args: Namespace, context: Context) -> tuple[list[Plan], list[Diagnostic]]:
    from mcpiac.commands import view
    from mcpiac.commands.choose import choose, orphan_notes, qualify
    from mcpiac.commands.loop import Loop
    from mcpiac.state.store import Store

    project = context.project()
    store = Store(project.root / "state")
    choice = choose(project, store, args.stacks, destroy=args.destroy)
    names = [c.name for c in choice.chosen]
    given = _given_state(context.cwd / args.state, names) if args.state else {}
    recorded = {name: given.get(name) or store.read(name) for name in names}
    others = {name: store.read(name) for name in store.names() if name not in recorded}
    states = {name: state or view.fresh(name) for name, state in recorded.items()}
    at = {c.name: view.provider_name(c, recorded[c.name]) for c in choice.chosen}
    options = qualify(
        flags.options(args, destroy=args.destroy),
        {c.name: {*(c.stack.servers if c.stack else ()), *states[c.name].servers} for c in choice.chosen},
    )
    live = {}
    if not (args.no_refresh or args.untrusted):
        places = {name: provider for name, provider in at.items() if provider is not None}

        async def look() -> dict[str, LiveView]:
            async with view.connected(sorted(set(places.values())), context.environ) as providers:
                return await view.refresh(providers, places, states)

        with Loop() as loop:
            live = loop.run(look())
    plans = []
    notes = [*choice.findings]
    for chosen in choice.chosen:
        state, provider = states[chosen.name], at[chosen.name]
        if provider is None:
            continue
        found = view.Secrets()
        if not args.untrusted and not args.destroy:
            wanted = view.wanted_secrets(chosen)
            found = view.resolve(context, project.root, chosen.name, state.lineage, wanted, create_key=False)
            notes += found.warnings
        taken = view.taken_variables(chosen.name, choice, states, others)
        seen = live.get(provider) or view.unread()
        plans.append(view.make(context, chosen, state, seen, options, found, taken, provider))
    if not args.stacks:
        notes += orphan_notes(choice.orphaned, others)
    return plans, notes


def _given_state(path: Path, names: list[str]) -> dict[str, State]:
    from mcpiac.state.loading import parse_snapshot

    if len(names) != 1:
        raise error("usage", "plan: --state is one stack's state: name that stack")
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise error("state-unreadable", f"{path} cannot be read: {fault.strerror}") from fault
    return {names[0]: parse_snapshot(path, names[0], data)}


def _show(context: Context, plans: list[Plan], notes: list[Diagnostic], form: str, args: Namespace) -> None:
    from mcpiac.ui import diagnostics, json_lines, markdown, text

    screen = context.screen
    findings = [*notes, *(d for p in plans for d in p.diagnostics)]
    untrusted = "Untrusted: no secret was read, nothing was started, live state was not asked."
    if form == "json":
        if args.untrusted:
            screen.result(json_lines.encode("untrusted", {"said": untrusted}))
        for plan in plans:
            screen.result(json_lines.plan(plan))
        for each in notes:
            screen.result(json_lines.diagnostic(each))
        return
    if form == "markdown":
        head = f"> {untrusted}\n\n" if args.untrusted else ""
        screen.result(head + (markdown.plans(plans) or "No stacks."))
    else:
        if args.untrusted:
            screen.result(untrusted + "\n")
        blocks = [text.plan(p, screen.colour_out) for p in plans]
        screen.result(text.joined(blocks) or "No stacks: `mcpiac init` writes a first one.")
        totals = text.totals(plans)
        if totals:
            screen.result(f"\n{totals}")
    if findings:
        screen.tell(diagnostics.render(findings, screen.colour_err))
    failed = [d for p in plans for d in p.errors]
    if form == "text" and any(p.pending for p in plans) and not failed:
        screen.result(f"Run `{_next(args)}` to do this.")


def _next(args: Namespace) -> str:
    if args.out:
        return shlex.join(["mcpiac", "apply", args.out])
    verb = "destroy" if args.destroy else "apply"
    return shlex.join(["mcpiac", verb, *args.stacks, *flags.typed(args)])
