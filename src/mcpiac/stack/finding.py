"""What a rule found: where in the tree or the text, what is wrong, what to write. Positions are added later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcpiac.model.diagnostic import Severity

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the file, as pydantic's ``loc``."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in the text, counted from 0. ``width`` in characters on that line."""

    line: int
    column: int
    width: int = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """``at`` is a path in the tree or a spot in the text. ``on``: the key of that path, or its value."""

    code: str
    summary: str
    at: Path | Spot
    hint: str = ""
    detail: str = ""
    on: Literal["key", "value"] = "value"
    severity: Severity = "error"
