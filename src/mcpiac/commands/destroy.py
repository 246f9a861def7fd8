"""``mcpiac destroy``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.commands import flags

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context

EXAMPLES = ("mcpiac destroy demo", "mcpiac destroy -y demo --target everything")


def configure(parser: ArgumentParser) -> None:
    flags.stacks(parser, "a stack's file or name, also of a file that is gone (default: all)")
    flags.running(parser)
    flags.planning(parser)
    parser.add_argument("--orphans", action="store_true", help="instead: what is ours and stands in no record")


def run(args: Namespace, context: Context) -> int:
    if args.orphans:
        from mcpiac.commands import orphans

        return orphans.run(context, args.stacks, yes=args.yes)
    from mcpiac.commands import flow

    again = " ".join(["mcpiac destroy", *args.stacks])
    manner = flow.Manner("destroy", again, yes=args.yes, as_json=args.json, at_once=args.parallelism)
    return flow.run(context, manner, args.stacks, flags.options(args, destroy=True))
