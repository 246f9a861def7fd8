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


def run(args: Namespace, context: Context) -> int:
    from mcpiac.commands import flow

    again = " ".join(["mcpiac destroy", *args.stacks])
    manner = flow.Manner("destroy", again, yes=args.yes, as_json=args.json, at_once=args.parallelism)
    return flow.run(context, manner, args.stacks, flags.options(args, destroy=True))
