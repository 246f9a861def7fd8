"""``mcpiac status``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mcpiac.commands import flags

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context
    from mcpiac.commands.fleet import Fleet
    from mcpiac.model.live import LiveView

EXAMPLES = ("mcpiac status", "mcpiac status demo --json | jq '.servers[].state'")


def configure(parser: ArgumentParser) -> None:
    flags.stacks(parser)
    parser.add_argument("--json", action="store_true", help="as one JSON object")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.commands import fleet
    from mcpiac.commands.loop import Loop
    from mcpiac.ui import json_lines, status

    found = fleet.recorded(context, args.stacks)
    members = found.members()
    live: dict[str, LiveView] = {}
    if members:
        with Loop() as loop:
            live = loop.run(_look(found, context))
    now = datetime.now(UTC)
    rows = []
    for member in members:
        seen = live[member.provider].sandboxes.get(member.box.id)
        stack, server = member.address.stack, member.address.server
        rows.append(status.row(stack, server, member.server, member.box.idle, seen, now))
    waiting = _waiting(found, args.stacks)
    if args.json:
        body = {
            "servers": status.data(rows),
            "not_applied": [{"stack": stack, "server": name} for stack, names in waiting.items() for name in names],
        }
        context.screen.result(json_lines.encode("status", body))
        return 0
    for stack, names in waiting.items():
        rows += [status.Row(stack, name, "not-applied", next="mcpiac apply") for name in names]
    rows.sort(key=lambda r: (r.stack, r.server))
    if rows:
        places = {m.address.stack: m.provider for m in members}
        context.screen.result(status.table(rows, places))
    else:
        context.screen.tell("Nothing is declared and nothing is recorded here: `mcpiac init` writes a first stack.")
    return 0


async def _look(found: Fleet, context: Context) -> dict[str, LiveView]:
    from mcpiac.commands import fleet

    async with fleet.reached(found, context) as providers:
        return await fleet.look(found, providers)


def _waiting(found: Fleet, names: list[str]) -> dict[str, list[str]]:
    """Servers that are declared and not recorded, by stack. A file that cannot be read says nothing here."""
    from mcpiac.model.diagnostic import Diagnosed
    from mcpiac.stack.load import read_stack

    waiting: dict[str, list[str]] = {}
    try:
        paths = found.project.select(names)
    except Diagnosed:
        return waiting
    for path in paths:
        stack = read_stack(path, found.project.root).stack
        if stack is not None:
            state = found.states.get(stack.name)
            known = state.servers if state is not None else {}
            waiting[stack.name] = [name for name in stack.servers if name not in known]
    return waiting
