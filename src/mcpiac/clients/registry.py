"""The clients that are known, by name."""

from __future__ import annotations

from mcpiac.clients import claude_code
from mcpiac.clients.entry import Client
from mcpiac.model.diagnostic import error

CLIENTS: dict[str, Client] = {c.name: c for c in (claude_code.CLIENT,)}


def client(name: str) -> Client:
    """A client by its name; ``Diagnosed`` for one that is not known."""
    if name in CLIENTS:
        return CLIENTS[name]
    raise error("no-such-client", f"no client is called {name}", hint=f"There is: {', '.join(sorted(CLIENTS))}.")
