"""Where output goes: results on stdout, progress and diagnostics on stderr; colour and motion only on a terminal."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from mcpiac.model.diagnostic import error

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def paint(text: str, style: str, on: bool) -> str:
    """A text in a style (``bold``, ``dim``, ``red``, ``green``, ``yellow``, ``cyan``), or as it is when off.

    Colour only ever repeats what a symbol or a word says already.
    """
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if on and text else text


@dataclass(slots=True)
class Screen:
    """The two streams of a run and what they can show. ``width`` in columns."""

    out: TextIO
    err: TextIO
    colour_out: bool = False
    colour_err: bool = False
    live: bool = False
    asks: bool = False
    width: int = 80

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Screen:
        """The process's own streams. ``NO_COLOR``, ``CI`` and ``TERM=dumb`` switch colour and motion off."""
        out, err = sys.stdout, sys.stderr
        plain = bool(environ.get("NO_COLOR") or environ.get("CI")) or environ.get("TERM") == "dumb"
        still = bool(environ.get("CI")) or environ.get("TERM") == "dumb"
        return cls(
            out=out,
            err=err,
            colour_out=out.isatty() and not plain,
            colour_err=err.isatty() and not plain,
            live=err.isatty() and not still,
            asks=sys.stdin is not None and sys.stdin.isatty() and err.isatty(),
            width=max(40, shutil.get_terminal_size((80, 24)).columns),
        )

    def result(self, text: str) -> None:
        """A line or lines of the result. Raises ``BrokenPipeError``, and ``Diagnosed`` for a full disk."""
        try:
            self.out.write(text + "\n")
            self.out.flush()
        except BrokenPipeError:
            raise
        except OSError as fault:
            raise error("output-not-written", f"the output could not be written: {fault.strerror}") from fault

    def tell(self, text: str) -> None:
        """A line or lines about the run. A reader who has gone away never stops a run."""
        with contextlib.suppress(OSError):
            self.err.write(text + "\n")
            self.err.flush()
