"""``mcpiac apply``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.commands import flags
from mcpiac.model.diagnostic import error

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context

EXAMPLES = ("mcpiac apply", "mcpiac apply -y demo --target files")


def configure(parser: ArgumentParser) -> None:
    flags.stacks(parser, "a stack's file or name (default: all), or one saved plan")
    flags.running(parser)
    flags.planning(parser)
    flags.refresh_only(parser)


def run(args: Namespace, context: Context) -> int:
    from mcpiac.commands import flow
    from mcpiac.commands.saved import is_saved, load

    again = " ".join(["mcpiac apply", *args.stacks])
    manner = flow.Manner("apply", again, yes=args.yes, as_json=args.json, at_once=args.parallelism)
    saved = [name for name in args.stacks if is_saved(context.cwd / name)]
    if not saved:
        return flow.run(context, manner, args.stacks, flags.options(args))
    if len(args.stacks) > 1:
        raise error("usage", "apply: a saved plan is applied alone")
    given = flags.given(args)
    if given:
        raise error("usage", f"apply: a saved plan keeps its own flags and takes no {given[0]}")
    return flow.run_saved(context, manner, saved[0], load(context.cwd / saved[0]))
