"""One neutral entry per server, which each client's renderer turns into that client's shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A hosted server as a client needs it. ``url`` carries no token; ``variable`` names the environment variable
    that holds it, None for a public one."""

    name: str
    url: str
    variable: str | None


@dataclass(frozen=True, slots=True)
class Client:
    """``render`` gives the text of the client's file; ``usage`` says where it goes."""

    name: str
    usage: str
    render: Callable[[Sequence[Entry]], str]
