"""Records for the tests of the state."""

from __future__ import annotations

from mcpiac.model.action import Action
from mcpiac.model.record import Effect, Fingerprint, HostedRecord, Instance, SandboxRecord, ServerRecord

LINEAGE = "0123456789abcdef0123456789abcdef"
INSTANCE = Instance("local", "here")


def create(name: str, key: str | None = None) -> Action:
    """A create of a server's first sandbox."""
    key = key or f"key-{name}"
    owner = f"{LINEAGE}/{name}/{key}"
    payload = {"size": "small", "owner": owner, "variable": name.upper(), "port": 8000}
    return Action(f"{name}.create", name, "create", name, payload=payload, key=key)


def sandbox(name: str, lineage: str = LINEAGE) -> SandboxRecord:
    """A sandbox as a create leaves it."""
    key = f"key-{name}"
    prints = {"TOKEN": Fingerprint("k", "0" * 64, 3)}
    return SandboxRecord(f"sbx-{name}", key, f"{lineage}/{name}/{key}", "2026-11-30T00:00:00Z", secrets=prints)


def server(name: str) -> ServerRecord:
    """A server in the sandbox of its own name."""
    return ServerRecord(
        sandbox=name,
        spec={
            "package": {"registry": "npm", "name": "x", "version": "1.0.0", "extras": []},
            "args": ["a"],
            "idle": 15,
        },
        variable=name.upper().replace("-", "_"),
        port=8000,
        hosted=HostedRecord(8000, "http://127.0.0.1:18431", "private", True),
        inputs={"exec": "d" * 64},
        files={"/home/user/a": "e" * 64},
    )


def effect(name: str, lineage: str = LINEAGE) -> Effect:
    """What a create of ``name`` changes."""
    return Effect({name: sandbox(name, lineage)}, {name: server(name)}, INSTANCE)
