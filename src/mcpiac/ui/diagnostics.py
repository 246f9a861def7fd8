"""Diagnostics as text: where, what, the line with a caret, what to type next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mcpiac.model.diagnostic import Diagnostic, Severity
from mcpiac.ui import escape
from mcpiac.ui.screen import paint
from mcpiac.ui.words import count

_STYLE: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "cyan"}
_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


def ordered(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """As shown: errors first, then by place, then as they came; equal ones once."""
    unique = list(dict.fromkeys(diagnostics))
    return sorted(
        unique,
        key=lambda d: (
            _RANK[d.severity],
            (d.origin.file, d.origin.line, d.origin.column) if d.origin else ("", 0, 0),
        ),
    )


def one(diagnostic: Diagnostic, colour: bool = False) -> str:
    """One diagnostic, several lines, no line end after the last."""
    d = diagnostic
    place = f"{escape.line(str(d.origin))}: " if d.origin else ""
    about = f" {escape.line(d.address)}" if d.address else ""
    head = paint(f"{d.severity}[{d.code}]", _STYLE[d.severity], colour)
    lines = [f"{place}{head}{about}: {escape.line(d.summary)}"]
    hint = d.hint
    if d.excerpt is not None and d.origin is not None and d.origin.line:
        number = f"{d.origin.line:>3}"
        at = max(0, (d.excerpt.caret or d.origin.column) - 1)
        before = escape.line(d.excerpt.text[:at])
        marked = escape.line(d.excerpt.text[at : at + d.excerpt.width])
        after = escape.line(d.excerpt.text[at + d.excerpt.width :])
        caret = "^" * max(1, escape.width(marked))
        first, *more = escape.block(hint).splitlines() or [""]
        lines.append(f"{number} | {escape.cut(before + marked + after, 200)}")
        lines.append(f"    | {' ' * escape.width(before)}{paint(caret, 'red', colour)} {first}".rstrip())
        lines += [f"    | {part}" for part in more]
        hint = ""
    lines += [f"  {part}" for part in escape.block(d.detail).splitlines()]
    lines += [f"  {part}" for part in escape.block(hint).splitlines()]
    return "\n".join(lines)


def render(diagnostics: Sequence[Diagnostic], colour: bool = False, closing: str = "") -> str:
    """All of them, and after errors one line that counts them: ``3 errors in 1 file; nothing was changed.``

    ``closing`` says what became of the run (``nothing was changed``); without it the count line is left out.
    """
    shown = ordered(diagnostics)
    if not shown:
        return ""
    text = ""
    for before, now in zip([None, *shown], shown, strict=False):
        text += ("\n" if before is None else _between(before, now)) + one(now, colour)
    text = text.removeprefix("\n")
    errors = [d for d in shown if d.severity == "error"]
    if errors and closing:
        files = {d.origin.file for d in errors if d.origin}
        within = f" in {count(len(files), 'file')}" if files else ""
        text += f"\n\n{count(len(errors), 'error')}{within}; {closing}."
    return text


def _between(before: Diagnostic, now: Diagnostic) -> str:
    """One-line notes stand together; anything longer gets a free line around it."""
    return "\n" if not (_long(before) or _long(now)) else "\n\n"


def _long(d: Diagnostic) -> bool:
    return bool(d.excerpt or d.detail or d.hint)
