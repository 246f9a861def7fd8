"""How a server is named across files, state, plans and messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """One server of one stack; printed as ``stack/server``."""

    stack: str
    server: str

    def __str__(self) -> str:
        return f"{self.stack}/{self.server}"
