"""``mcpiac init``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context

EXAMPLES = ("mcpiac init", "mcpiac init ~/fleet")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", help="where (default: this folder, or -C)")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.stack.scaffold import init

    root = Path(args.folder) if args.folder else context.chdir or context.cwd
    written = init(root)
    for path in written:
        context.screen.result(f"wrote {path.relative_to(root) if path.is_relative_to(root) else path}")
    if not written:
        context.screen.result("Everything is here already; nothing was written.")
    context.screen.tell("\nNext: look at stacks/, set the secrets that it names, then `mcpiac plan`.")
    return 0
