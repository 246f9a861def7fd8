"""``mcpiac schema``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context

EXAMPLES = ("mcpiac schema", "mcpiac schema > schema/stack.schema.json")


def configure(parser: ArgumentParser) -> None:
    """No flags."""


def run(args: Namespace, context: Context) -> int:
    from mcpiac.stack.scaffold import schema_text

    context.screen.result(schema_text().rstrip("\n"))
    return 0
