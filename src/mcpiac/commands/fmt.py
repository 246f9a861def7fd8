"""``mcpiac fmt``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context

EXAMPLES = ("mcpiac fmt", "mcpiac fmt --check demo")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("stacks", metavar="STACK", nargs="*", help="a stack's file or name (default: all)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not laid out")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.stack.format import format_file

    project = context.project()
    off = 0
    for path in project.select(args.stacks):
        before, after = format_file(path, project.root)
        if before == after:
            continue
        off += 1
        shown = path.relative_to(project.root) if path.is_relative_to(project.root) else path
        if not args.check:
            _replace(path, after)
        context.screen.result(f"{'not laid out: ' if args.check else 'wrote '}{shown}")
    return 1 if args.check and off else 0


def _replace(path: Path, text: str) -> None:
    """Whole or not at all, with the mode that it had; a symlink's target is what is replaced."""
    target = path.resolve()
    fresh = target.with_name(f".{target.name}.fmt")
    fresh.write_bytes(text.encode("utf-8"))
    fresh.chmod(target.stat().st_mode & 0o777)
    fresh.replace(target)
