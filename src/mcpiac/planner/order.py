"""Steps of each server → actions: in the order of their chain, with ids and edges.

A chain is done one action after another; chains of different servers do not wait for each other. The one exception:
where a stack moves to another provider, nothing is created before the old sandboxes are marked as the old one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mcpiac.model.action import Action, Verb

_VERBS: tuple[Verb, ...] = (
    "record",
    "create",
    "rename",
    "resume",
    "restart",
    "ttl",
    "exec",
    "host",
    "idle",
    "hide",
    "stop",
    "check",
    "delete",
)
ORDER: Mapping[Verb, int] = {verb: place for place, verb in enumerate(_VERBS)}
"""The place of a verb in its chain. A ``late`` hide stands between check and delete: the old port or the old sandbox
goes only when the new one answered."""


@dataclass(frozen=True, slots=True)
class Step:
    """An action before it has an id. ``sandbox`` is the key in the state, ``target`` the provider's id if known."""

    verb: Verb
    sandbox: str
    payload: Mapping[str, Any]
    summary: str = ""
    target: str | None = None
    key: str | None = None
    late: bool = False


def chain(server: str, steps: Iterable[Step], first: Action | None = None) -> tuple[Action, ...]:
    """The actions of one server. ``first`` is what a create waits for, if anything."""
    actions: list[Action] = []
    used: set[str] = set()
    for step in sorted(steps, key=_place):
        after = (actions[-1].id,) if actions else ()
        if first is not None and step.verb == "create":
            after = (*after, first.id)
        name = _id(server, step, used)
        used.add(name)
        actions.append(
            Action(
                id=name,
                server=server,
                verb=step.verb,
                sandbox=step.sandbox,
                summary=step.summary,
                payload=step.payload,
                after=after,
                target=step.target,
                key=step.key,
            )
        )
    return tuple(actions)


def _place(step: Step) -> tuple[int, int, int]:
    moves = step.verb == "record" and step.payload["what"] == "move"
    return (1 if step.late else 0, ORDER[step.verb], 0 if moves else 1)


def _id(server: str, step: Step, used: set[str]) -> str:
    name = f"{server}.{step.verb}"
    if step.verb in ("host", "hide"):
        name = f"{name}-{step.payload['port']}"
    elif step.verb == "record" and step.payload["what"] != "settle":
        name = f"{name}-{step.payload['what']}"
    if name not in used:
        return name
    return f"{name}-{step.sandbox}"
