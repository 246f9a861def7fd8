"""What a person is told about a fault: a value, collected on the way and shown at the top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """A place in a file. ``line`` and ``column`` count from 1, ``column`` in characters; 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The line that a diagnostic points at. ``text`` is already masked where it could hold a secret.

    ``width`` is the number of characters under the caret line. ``caret`` is the column in ``text`` (from 1) where it
    starts; 0: the origin's own column. They differ where a long line was cut or something before was masked.
    """

    text: str
    width: int = 1
    caret: int = 0


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. ``code`` is stable and documented in ``docs/diagnostics.md``.

    ``summary`` is one line that says what is wrong; ``detail`` why, over more lines; ``hint`` what to write
    or to type next. Texts may quote what came from outside: renderers escape them.
    """

    severity: Severity
    code: str
    summary: str
    detail: str = ""
    address: str | None = None
    origin: Origin | None = None
    excerpt: Excerpt | None = None
    hint: str = ""


class Diagnosed(Exception):
    """Carries diagnostics from the place that found them to the top, where they are shown.

    The only exception that is an answer to the user; any other one is a bug.
    """

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("; ".join(f"[{d.code}] {d.summary}" for d in diagnostics))
        self.diagnostics = diagnostics


def error(code: str, summary: str, **rest: object) -> Diagnosed:
    """Shorthand: a ``Diagnosed`` of one error."""
    return Diagnosed(Diagnostic("error", code, summary, **rest))  # type: ignore[arg-type]
