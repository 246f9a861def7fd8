"""``mcpiac completion``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context

EXAMPLES = (
    "mcpiac completion bash > ~/.local/share/bash-completion/completions/mcpiac",
    'mcpiac completion zsh > "${fpath[1]}/_mcpiac"',
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that will read it")


def run(args: Namespace, context: Context) -> int:
    import shtab

    from mcpiac.commands.parser import whole

    context.screen.result(shtab.complete(whole(), shell=args.shell))
    return 0
