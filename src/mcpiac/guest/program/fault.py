"""How a set-up says that it cannot go on."""

from __future__ import annotations

from collections.abc import Sequence


class Failed(Exception):
    """A stable code, one line, what to type next, and the server's last lines."""

    def __init__(self, code: str, summary: str, hint: str = "", lines: Sequence[str] = ()) -> None:
        super().__init__(summary)
        self.told = {"code": code, "summary": summary, "hint": hint, "lines": list(lines)}
