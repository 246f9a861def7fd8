"""``mcpiac connect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.commands import flags
from mcpiac.model.diagnostic import error

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context

EXAMPLES = ("mcpiac connect --print claude-code", "mcpiac connect --print claude-code demo > .mcp.json")


def configure(parser: ArgumentParser) -> None:
    flags.stacks(parser)
    parser.add_argument("--print", dest="client", metavar="CLIENT", help="print what this client reads: claude-code")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.clients import registry
    from mcpiac.clients.entry import Entry
    from mcpiac.commands import fleet

    if args.client is None:
        raise error(
            "later",
            "writing into a client's own file comes with a later version",
            hint="`mcpiac connect --print claude-code` prints what to paste.",
        )
    client = registry.client(args.client)
    entries = []
    for member in fleet.recorded(context, args.stacks).members():
        hosted = member.server.hosted
        if hosted is not None:
            variable = None if hosted.access == "public" else f"{member.server.variable}_MCP_AUTH"
            entries.append(Entry(member.name.replace("/", "-"), member.server.endpoint or "", variable))
    if not entries:
        raise error("nothing-hosted", "no server is hosted yet", hint="`mcpiac apply` makes the fleet.")
    context.screen.result(client.render(entries))
    if any(entry.variable for entry in entries):
        context.screen.tell(f'\n{client.usage}\nThe tokens, for the shell that starts it:  eval "$(mcpiac env)"')
    return 0
