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
    import json

    from mcpiac.stack.schema import json_schema

    context.screen.result(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0
