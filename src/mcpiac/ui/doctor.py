"""The findings of ``mcpiac doctor``: what was looked at, what is, what it means, what to type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mcpiac.ui import escape
from mcpiac.ui.screen import paint
from mcpiac.ui.text import wrap
from mcpiac.ui.words import count

Level = Literal["ok", "note", "warning", "error"]
SYMBOL: dict[Level, str] = {"ok": "✓", "note": "·", "warning": "!", "error": "✗"}
STYLE: dict[Level, str] = {"ok": "green", "note": "dim", "warning": "yellow", "error": "red"}


@dataclass(frozen=True, slots=True)
class Line:
    """One thing looked at. ``error``: apply would fail. Codes: docs/diagnostics.md."""

    code: str
    level: Level
    looked_at: str
    found: str
    means: str = ""
    cure: str = ""


def render(lines: Sequence[Line], colour: bool = False) -> str:
    """A line per finding, longer where something is to be done; the last line says whether apply can work."""
    wide = max((escape.width(each.looked_at) for each in lines), default=0)
    shown = []
    for each in lines:
        name = escape.line(each.looked_at)
        symbol = paint(SYMBOL[each.level], STYLE[each.level], colour)
        shown.append(f"  {symbol} {name}{' ' * (wide - escape.width(name))}   {escape.line(each.found)}")
        if each.means:
            shown += wrap(escape.line(each.means), " " * 6, " " * 6)
        shown += [f"      {part}" for part in escape.block(each.cure).splitlines()]
    errors = sum(each.level == "error" for each in lines)
    warnings = sum(each.level == "warning" for each in lines)
    if errors:
        last = f"{count(errors, 'finding')} in the way of `mcpiac apply`."
    elif warnings:
        last = f"Nothing is in the way of `mcpiac apply`; {count(warnings, 'thing')} to look at."
    else:
        last = "All is well."
    return "\n".join([*shown, "", last])


def data(lines: Sequence[Line]) -> dict[str, Any]:
    """The findings as JSON-ready data."""
    return {"ok": not any(each.level == "error" for each in lines), "findings": [asdict(each) for each in lines]}
