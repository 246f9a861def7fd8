"""One idempotent step against a provider, and its trace in the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Verb = Literal[
    "create",
    "exec",
    "host",
    "hide",
    "idle",
    "ttl",
    "resume",
    "restart",
    "stop",
    "rename",
    "delete",
    "check",
    "record",
]
"""``record`` calls nobody: it writes what changed without an action (move, forget, labels, accepted drift)."""


@dataclass(frozen=True, slots=True)
class Action:
    """One step. ``id`` is unique within the plan (``files.create``, ``files.host-8000``).

    ``sandbox`` is the key of the sandbox record that it works on: the actions of one sandbox form a chain.
    ``target`` is the provider's id where it is known at plan time (not before a create). ``payload`` is JSON-ready
    and holds no secret. ``after`` names the actions that must be done first. ``summary`` is what a plan shows beside
    the verb. ``key`` is the idempotency key of a create.
    """

    id: str
    server: str
    verb: Verb
    sandbox: str
    summary: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    target: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A journal entry: what was begun, when (ISO 8601 UTC), and the sandbox id once it is known.

    ``number`` counts within one journal. ``step`` tells how far a composite came (restart: ``stopped``).
    ``found`` is the id that a create answered, written at once, before it is usable.
    """

    number: int
    action: Action
    began_at: str
    plan: str = ""
    step: str | None = None
    found: str | None = None
