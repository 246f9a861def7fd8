"""Columns that line up."""

from __future__ import annotations

from collections.abc import Sequence

from mcpiac.ui import escape


def columns(rows: Sequence[Sequence[str]], *, indent: int = 2, gap: int = 3, width: int | None = None) -> list[str]:
    """Rows of cells as lines; every column as wide as its widest cell, the last one cut to ``width`` if given.

    Cells are escaped here; they carry no colour.
    """
    cells = [[escape.line(cell) for cell in row] for row in rows]
    count = max((len(row) for row in cells), default=0)
    wide = [max((escape.width(row[i]) for row in cells if i < len(row) - 1), default=0) for i in range(count)]
    lines = []
    for row in cells:
        text = " " * indent
        for i, cell in enumerate(row):
            last = i == len(row) - 1
            if last:
                room = None if width is None else max(8, width - escape.width(text))
                text += cell if room is None else escape.cut(cell, room)
            else:
                text += cell + " " * (wide[i] - escape.width(cell) + gap)
        lines.append(text.rstrip())
    return lines
