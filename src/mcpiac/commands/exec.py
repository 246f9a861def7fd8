"""``mcpiac exec``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.commands import flags
from mcpiac.model.diagnostic import error

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context
    from mcpiac.commands.fleet import Fleet, Member
    from mcpiac.model.ports import CommandResult

EXAMPLES = ("mcpiac exec files -- ls -l /home/user/project", "mcpiac exec demo/everything -- sh -c 'ps aux | head'")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("server", metavar="SERVER", help="STACK/NAME, or NAME where that is unique")
    parser.add_argument("command", metavar="CMD", nargs="*", help="the command and its arguments")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=flags.positive, default=600, help="how long it may take (default: 600)"
    )
    parser.add_argument(
        "--raw", action="store_true", help="what it prints byte for byte, also on a terminal or in CI"
    )


def run(args: Namespace, context: Context) -> int:
    import shlex

    from mcpiac.commands import fleet
    from mcpiac.commands.loop import Loop
    from mcpiac.ui import escape

    words = args.command
    if not words:
        raise error("usage", "exec: no command was given", hint="Write it after `--`: mcpiac exec files -- ls -l")
    found = fleet.recorded(context)
    member = found.member(args.server)
    with Loop() as loop:
        ended = loop.run(_run(found, member, shlex.join(words), args.timeout, context))
    screen = context.screen
    watched = screen.out.isatty() or bool(context.environ.get("CI"))
    shown = escape.block if watched and not args.raw else str
    screen.out.write(shown(ended.stdout))
    screen.out.flush()
    screen.err.write(shown(ended.stderr))
    screen.err.flush()
    if ended.timed_out:
        raise error("exec-timeout", f"the command ran longer than {args.timeout} s and was ended")
    return ended.exit_code


async def _run(found: Fleet, member: Member, command: str, timeout: float, context: Context) -> CommandResult:
    from mcpiac.commands import fleet, view

    async with fleet.reached(found.only(member), context) as providers:
        with view.told("the command could not be run", str(member.address)):
            return await providers[member.provider].run(member.box.id, command, timeout=timeout)
