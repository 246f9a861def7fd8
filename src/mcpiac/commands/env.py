"""``mcpiac env``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.commands import flags

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context

EXAMPLES = ('eval "$(mcpiac env)"', "mcpiac env demo > .env && chmod 600 .env")


def configure(parser: ArgumentParser) -> None:
    flags.stacks(parser)


def run(args: Namespace, context: Context) -> int:
    import shlex

    from mcpiac.commands import fleet
    from mcpiac.commands.loop import Loop
    from mcpiac.commands.output import ask
    from mcpiac.ui.diagnostics import render
    from mcpiac.wire import COOKIE

    found = fleet.recorded(context, args.stacks)
    members = found.members()
    with Loop() as loop:
        known, faults = loop.run(ask(found, members, context))
    lines = []
    for member in members:
        hosted = known.get(member.address)
        if hosted is not None and hosted.token is not None:
            token = hosted.token.reveal()
            lines.append(f"export {member.server.variable}_MCP_AUTH={shlex.quote(token)}")
            lines.append(f"export {member.server.variable}_MCP_COOKIE={shlex.quote(f'{COOKIE}={token}')}")
    if lines:
        context.screen.result("\n".join(lines))
    if faults:
        context.screen.tell(render(faults, context.screen.colour_err))
    return 1 if any(d.severity == "error" for d in faults) else 0
