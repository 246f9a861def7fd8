"""``mcpiac logs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.commands import flags

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context
    from mcpiac.commands.fleet import Fleet, Member

EXAMPLES = ("mcpiac logs files", "mcpiac logs -f --tail 20 demo/everything")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("server", metavar="SERVER", help="STACK/NAME, or NAME where that is unique")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as lines come")
    parser.add_argument(
        "--tail", metavar="N", type=flags.positive, default=100, help="the last N lines (default: 100)"
    )
    parser.add_argument("--json", action="store_true", help="each line with its time and stream, as JSON")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.commands import fleet
    from mcpiac.commands.loop import Loop

    found = fleet.recorded(context)
    member = found.member(args.server)
    with Loop() as loop:
        try:
            loop.run(_read(found, member, context, args))
        except KeyboardInterrupt:
            if not args.follow:
                raise
    return 0


async def _read(found: Fleet, member: Member, context: Context, args: Namespace) -> None:
    from mcpiac.commands import fleet, view
    from mcpiac.ui import escape, json_lines

    async with fleet.reached(found.only(member), context) as providers:
        with view.told("its log", str(member.address)):
            service = member.server.service
            provider = providers[member.provider]
            async for line in provider.logs(member.box.id, service, follow=args.follow, tail=args.tail):
                if args.json:
                    body = {"server": str(member.address), "at": line.at, "stream": line.stream, "text": line.text}
                    context.screen.result(json_lines.encode("log", body))
                else:
                    mark = "· " if line.stream == "system" else ""
                    context.screen.result(mark + escape.block(line.text))
