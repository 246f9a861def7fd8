"""The figures of a run, printed as they come."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Row:
    """One figure. ``bar`` None: no bar, only told. ``unit`` names it; smaller is better."""

    what: str
    value: float
    unit: str
    bar: float | None = None
    note: str = ""

    @property
    def missed(self) -> bool:
        return self.bar is not None and self.value > self.bar


@dataclass
class Report:
    rows: list[Row] = field(default_factory=list)

    def add(self, what: str, value: float, unit: str, bar: float | None = None, note: str = "") -> None:
        row = Row(what, round(value, 3), unit, bar, note)
        self.rows.append(row)
        print(_line(row), flush=True)


def _line(row: Row) -> str:
    bar = "" if row.bar is None else f"bar {row.bar:g}"
    verdict = "" if row.bar is None else ("MISSED" if row.missed else "ok")
    return f"{row.what:<52}{row.value:>10.3f} {row.unit:<6}{bar:<12}{verdict:<8}{row.note}".rstrip()
