"""What the planner chooses once and the record keeps: names, ports, variables, sandbox keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mcpiac.model.record import ServerRecord, State
from mcpiac.model.spec import ServerSpec

FIRST_PORT = 8000


def display_name(stack: str, server: str, lineage: str) -> str:
    """The sandbox's name at the provider: ``mcp-<stack>--<server>-<6 hex of the lineage>``. It proves nothing."""
    return f"mcp-{stack}--{server}-{lineage.replace('-', '')[:6]}"


def owner(lineage: str, server: str, key: str) -> str:
    """The owner marker, the value of ``MCPIAC_OWNER``: what proves that a sandbox is ours."""
    return f"{lineage}/{server}/{key}"


def owner_server(marker: str) -> str:
    """The server that a marker was made for."""
    return marker.split("/")[1] if marker.count("/") == 2 else ""


def port(spec: ServerSpec, record: ServerRecord | None, taken: Collection[int] = ()) -> int:
    """The declared port, else the recorded one (never renumbered), else 8000 or the lowest free above it.

    ``taken`` are the ports of the other servers in the same sandbox.
    """
    if spec.port is not None:
        return spec.port
    if record is not None:
        return record.port
    number = FIRST_PORT
    while number in taken:
        number += 1
    return number


class Names:
    """Hands out variables and sandbox keys that nobody else has; what is recorded is never given twice."""

    def __init__(self, state: State, taken_variables: Iterable[str]) -> None:
        self._stack = state.stack
        self._variables = {*taken_variables, *(record.variable for record in state.servers.values())}
        self._keys = {*state.sandboxes, *(entry.action.sandbox for entry in state.open)}

    def variable(self, server: str) -> str:
        """The server's name in capitals; where that is taken or begins with a digit, with the stack's before it."""
        plain = _shell(server)
        long = _shell(f"{self._stack}_{server}")
        name = plain if plain not in self._variables and not plain[:1].isdigit() else long
        number = 2
        while name in self._variables:
            name, number = f"{long}_{number}", number + 1
        self._variables.add(name)
        return name

    def key(self, server: str) -> str:
        """A key for a new sandbox: the server's name, numbered where an older sandbox has it."""
        name, number = server, 2
        while name in self._keys:
            name, number = f"{server}.{number}", number + 1
        self._keys.add(name)
        return name


def _shell(name: str) -> str:
    return name.upper().replace("-", "_")
