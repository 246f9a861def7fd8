"""The command: what was typed becomes a call of one verb, and how it ended becomes an exit code.

0 done or nothing to do; 1 any error; 2 only ``plan --detailed-exitcode`` with changes pending; 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from argparse import Namespace

    from mcpiac.model.diagnostic import Diagnosed
    from mcpiac.ui.screen import Screen

DONE, ERROR, PENDING, INTERRUPTED = 0, 1, 2, 130


def entry() -> NoReturn:
    """The console script."""
    gc.set_threshold(100_000, 50, 50)  # a large fleet is many small values that live to the end: look at them rarely
    code = main(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as fault:
        code = _unwritable(fault)
    gc.freeze()  # what lives now dies with the process: nothing to look through at the end
    sys.exit(code)


def main(argv: list[str]) -> int:
    """Run one command line; returns the exit code and raises nothing but ``SystemExit`` of ``--help``."""
    _open_missing_streams()
    if argv in (["version"], ["--version"], ["-V"]):
        from mcpiac.commands.version import number

        try:
            print(f"mcpiac {number()}", flush=True)
        except OSError as fault:
            return _unwritable(fault)
        return DONE
    as_json = "--json" in argv or "--format=json" in argv
    try:
        return _dispatch(argv)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing was changed by this run.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError as fault:
        return _unwritable(fault)
    except Exception as fault:
        from mcpiac.model.diagnostic import Diagnosed

        if isinstance(fault, Diagnosed):
            return _diagnosed(fault, as_json)
        return _bug(fault)


def _unwritable(fault: OSError) -> int:
    """stdout took no more: a reader who left needs no words, a full disk does."""
    if not isinstance(fault, BrokenPipeError):
        print(f"error[output-not-written]: the output could not be written: {fault.strerror}", file=sys.stderr)
    _discard_stdout()
    return ERROR


def _dispatch(argv: list[str]) -> int:
    from mcpiac.commands import parser

    args = parser.parse(argv)
    if args.verb in ("", "help"):
        print(parser.overview(), file=sys.stdout if args.verb else sys.stderr)
        return DONE if args.verb else ERROR
    return _run(args)


def _run(args: Namespace) -> int:
    from pathlib import Path

    from mcpiac.commands import parser
    from mcpiac.commands.context import Context

    _catch_signals()
    # Pydantic reads the metadata of every installed package in search of plugins, at 20 ms a start: none is wanted.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # httpx imports its own command line where click is installed (an optional extra, left out if that fails): 100 ms.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    context = Context(
        screen=_screen(),
        environ=dict(os.environ),
        cwd=Path.cwd(),
        chdir=Path(args.chdir) if args.chdir else None,
    )
    code: int = parser.module(args.verb).run(args, context)
    return code


def _screen() -> Screen:
    from mcpiac.ui.screen import Screen

    return Screen.of(os.environ)


def _diagnosed(fault: Diagnosed, as_json: bool) -> int:
    screen = _screen()
    try:
        if as_json:
            from mcpiac.ui import json_lines

            for each in fault.diagnostics:
                screen.result(json_lines.diagnostic(each))
        else:
            from mcpiac.ui.diagnostics import render

            closing = "nothing was changed" if any(d.origin for d in fault.diagnostics) else ""
            screen.tell(render(fault.diagnostics, screen.colour_err, closing))
    except BrokenPipeError:
        _discard_stdout()
    return ERROR


def _bug(fault: Exception) -> int:
    """Anything but a diagnostic is a fault of ours: the traceback, and where to send it.

    Local values are not shown, so no secret is.
    """
    import platform
    import traceback

    from mcpiac.commands.version import number

    traceback.print_exception(fault, file=sys.stderr)
    system = f"mcpiac {number()}, Python {platform.python_version()}, {platform.system()} {platform.release()}"
    print(
        f"\nThis is a fault of mcpiac, not of yours. What was done is recorded: the next run goes on from there.\n"
        f"Please report the lines above to the project, with this: {system}.",
        file=sys.stderr,
    )
    return ERROR


def _catch_signals() -> None:
    """SIGTERM and SIGHUP end a command like Ctrl-C does: in order, locks given back. ``nohup`` stays in force."""
    import signal

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def _open_missing_streams() -> None:
    """A closed stdout or stderr (``>&-``) is written to nowhere; what an encoding lacks is shown escaped."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            null = open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115 - for the process
            setattr(sys, name, null)
        elif name != "stdin" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _discard_stdout() -> None:
    """The reader has gone: what is still buffered goes nowhere, without a second complaint at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
