"""The program: reads the command line, then hands over to two processes (`supervise`)."""

from __future__ import annotations

import sys

from . import options

VERSION = "1.0.0"


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["--help"]:
        print(options.help_text())
        return 0
    if arguments[:1] == ["--version"]:
        print("mcpiac-bridge " + VERSION)
        return 0
    try:
        settings = options.parse(arguments)
    except options.Usage as exc:
        print(f"mcpiac-bridge: {exc}\ntry --help", file=sys.stderr)
        return 1
    from .supervise import supervise

    return supervise(lambda: _work(settings))


def _work(settings: options.Settings) -> int:
    # No TLS here: without the module the process is 4 MB smaller and starts sooner.
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
    from .run import run

    return run(settings)
