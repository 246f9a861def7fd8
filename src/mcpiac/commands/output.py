"""``mcpiac output``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.commands import flags

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context
    from mcpiac.commands.fleet import Fleet, Member
    from mcpiac.model.address import Address
    from mcpiac.model.diagnostic import Diagnostic
    from mcpiac.model.ports import Hosted

EXAMPLES = ("mcpiac output", "mcpiac output --json --show-tokens | jq -r '.servers[\"demo/files\"].token'")


def configure(parser: ArgumentParser) -> None:
    flags.stacks(parser)
    parser.add_argument("--json", action="store_true", help="as one JSON object; `servers` has STACK/NAME as keys")
    parser.add_argument("--show-tokens", action="store_true", help="with each URL's token; treat it like a password")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.commands import fleet
    from mcpiac.commands.loop import Loop
    from mcpiac.ui import json_lines
    from mcpiac.ui.diagnostics import render
    from mcpiac.ui.table import columns

    found = fleet.recorded(context, args.stacks)
    members = found.members()
    known: dict[Address, Hosted] = {}
    faults: list[Diagnostic] = []
    if args.show_tokens:
        with Loop() as loop:
            known, faults = loop.run(ask(found, members, context))
    if args.json:
        body = {str(m.address): _data(m, known.get(m.address), args.show_tokens) for m in members}
        context.screen.result(json_lines.encode("output", {"servers": body}))
    elif members:
        rows = [_row(m, known.get(m.address), args.show_tokens) for m in members]
        context.screen.result("\n".join(columns(rows)))
    else:
        context.screen.tell("No server is recorded here yet: `mcpiac apply` makes the fleet.")
    if faults:
        context.screen.tell(render(faults, context.screen.colour_err))
    return 1 if any(d.severity == "error" for d in faults) else 0


async def ask(
    found: Fleet, members: list[Member], context: Context
) -> tuple[dict[Address, Hosted], list[Diagnostic]]:
    from mcpiac.commands import fleet, tokens

    async with fleet.reached(found, context) as providers:
        return await tokens.hosted(members, providers)


def _row(member: Member, hosted: Hosted | None, tokens: bool) -> tuple[str, ...]:
    record = member.server.hosted
    if record is None:
        return (member.name, "not hosted", "–")
    variable = "public" if record.access == "public" else f"{member.server.variable}_MCP_AUTH"
    row = (member.name, member.server.endpoint or "", variable)
    return (*row, hosted.token.reveal() if hosted and hosted.token else "–") if tokens else row


def _data(member: Member, hosted: Hosted | None, tokens: bool) -> dict[str, object]:
    record = member.server.hosted
    data: dict[str, object] = {
        "stack": member.address.stack,
        "server": member.address.server,
        "provider": member.provider,
        "sandbox": member.box.id,
        "url": member.server.endpoint,
        "access": record.access if record else None,
        "port": member.server.port,
        "variable": f"{member.server.variable}_MCP_AUTH",
        "cookie_variable": f"{member.server.variable}_MCP_COOKIE",
    }
    if tokens:
        data["token"] = hosted.token.reveal() if hosted and hosted.token else None
    return data
