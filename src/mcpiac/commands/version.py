"""``mcpiac version``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context

EXAMPLES = ("mcpiac version", "mcpiac version --json")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="with Python and platform, as JSON")


def run(args: Namespace, context: Context) -> int:
    if not args.json:
        context.screen.result(f"mcpiac {number()}")
        return 0
    import json
    import platform

    found = {"version": number(), "python": platform.python_version(), "platform": platform.platform()}
    context.screen.result(json.dumps(found))
    return 0


def number() -> str:
    """The installed version. Reads the metadata's file itself: ``importlib.metadata`` takes longer than all else."""
    from mcpiac._version import VERSION

    return VERSION
