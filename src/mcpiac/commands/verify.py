"""``mcpiac verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.commands import flags
from mcpiac.model.diagnostic import Diagnosed, error

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context
    from mcpiac.commands.fleet import Fleet, Member
    from mcpiac.model.ports import CommandResult, Hosted, Provider
    from mcpiac.probe.verify import Row, Run, Subject

EXAMPLES = ("mcpiac verify", "mcpiac verify demo --json")
LOOK_SECONDS = 60


def configure(parser: ArgumentParser) -> None:
    flags.stacks(parser)
    parser.add_argument("--json", action="store_true", help="as one JSON object")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.commands import fleet
    from mcpiac.commands.loop import Loop
    from mcpiac.ui import json_lines, verify

    found = fleet.recorded(context, args.stacks)
    members = [m for m in found.members() if not m.box.stopped]
    if not members:
        raise error("nothing-applied", "no server runs here yet", hint="`mcpiac apply` makes the fleet.")
    with Loop() as loop:
        rows = loop.run(_verify(found, members, context))
    cells = [(r.check, r.server, r.verdict, r.detail) for r in rows]
    if args.json:
        context.screen.result(json_lines.encode("verify", verify.data(cells)))
    else:
        context.screen.result(verify.table(cells, context.screen.colour_out, context.screen.width))
    return 1 if any(r.verdict == "failed" for r in rows) else 0


async def _verify(found: Fleet, members: list[Member], context: Context) -> list[Row]:
    from mcpiac.commands import fleet, tokens
    from mcpiac.probe.verify import verify

    async with fleet.reached(found, context) as providers:
        known, faults = await tokens.hosted(members, providers)
        if any(d.severity == "error" for d in faults):
            raise Diagnosed(*faults)
        subjects = [_subject(m, known.get(m.address), providers[m.provider]) for m in members]
        return await verify(subjects)


def _subject(member: Member, hosted: Hosted | None, provider: Provider) -> Subject:
    from mcpiac.probe.verify import Subject

    return Subject(
        name=member.name,
        box=member.box.id,
        port=member.server.port,
        run=_runner(provider, member.box.id),
        url=member.server.endpoint,
        token=hosted.token if hosted else None,
        secrets=frozenset(member.server.spec.get("secrets") or {}),
        files=frozenset(member.server.spec.get("files") or {}),
    )


def _runner(provider: Provider, id: str) -> Run:
    async def run(command: str) -> CommandResult:
        return await provider.run(id, command, timeout=LOOK_SECONDS)

    return run
