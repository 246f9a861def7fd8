"""The table of ``mcpiac verify``: a line per check, a column per server; what failed is said below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcpiac.ui import escape
from mcpiac.ui.screen import paint
from mcpiac.ui.table import columns

SHOWN = {"ok": "ok", "failed": "FAILED", "not-applicable": "–"}
Cell = tuple[str, str, str, str]
"""Check, server, verdict (ok, failed, not-applicable), detail."""


def table(cells: Sequence[Cell], colour: bool = False, width: int = 80) -> str:
    """Servers as columns where they fit, else a count per check. The last line counts what holds."""
    checks = list(dict.fromkeys(c[0] for c in cells))
    servers = list(dict.fromkeys(c[1] for c in cells))
    by_place = {(check, server): (verdict, detail) for check, server, verdict, detail in cells}
    verdicts = {place: SHOWN[verdict] for place, (verdict, _) in by_place.items()}
    rows = [["CHECK", *servers]] + [[c, *(verdicts.get((c, s), "–") for s in servers)] for c in checks]
    lines = columns(rows)
    if max(escape.width(line) for line in lines) > width:
        rows = [["CHECK", "HOLDS"]]
        for check in checks:
            mine = [by_place[check, s][0] for s in servers if (check, s) in by_place]
            rows.append([check, f"{mine.count('ok')} of {len(mine) - mine.count('not-applicable')}"])
        lines = columns(rows)
    lines = [line.replace("FAILED", paint("FAILED", "red", colour)) for line in lines]
    failed = [c for c in cells if c[2] == "failed"]
    if failed:
        lines.append("")
        lines += columns([(f"{server}:", check, detail) for check, server, _, detail in failed])
    held = sum(c[2] == "ok" for c in cells)
    tried = held + len(failed)
    return "\n".join([*lines, f"{held} of {tried} hold."])


def data(cells: Sequence[Cell]) -> dict[str, Any]:
    """The cells as JSON-ready data."""
    held = sum(c[2] == "ok" for c in cells)
    tried = sum(c[2] != "not-applicable" for c in cells)
    rows = [{"check": c, "server": s, "verdict": v, "detail": d} for c, s, v, d in cells]
    return {"ok": held == tried, "held": held, "tried": tried, "rows": rows}
