"""The one table: spec field → the actions that its change leads to, by what a provider can do.

Total over ``ServerSpec`` (a test says so); ``docs/planning.md`` shows the same rows (a test says so too). Nothing
else in the planner decides which action a field leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from mcpiac.model.spec import Bridge, Build, Egress, EgressRule, Mount, Package, SecretRef, ServerSpec
from mcpiac.model.traits import Traits

Lead = Literal["exec", "restart", "host", "idle", "ttl", "power", "replace", "record"]
"""``power``: stop when it turns true, resume when false. ``restart``: in place where the traits say so. The others
are verbs, or ``replace``: a new sandbox."""

FIELDS: Mapping[str, tuple[Lead, ...]] = {
    "package": ("exec",),
    "command": ("exec",),
    "args": ("exec",),
    "env": ("exec",),
    "files": ("exec",),
    "secrets": ("restart",),
    "size": ("restart",),
    "ttl": ("ttl",),
    "idle": ("idle",),
    "transport": ("exec",),
    "bind": ("exec", "host"),
    "port": ("exec", "host"),
    "path": ("exec",),
    "access": ("host",),
    "hosted": ("host",),
    "bridge": ("exec",),
    "egress": ("restart",),
    "mounts": ("exec",),
    "sandbox": ("replace",),
    "labels": ("record",),
    "title": ("host",),
    "disabled": ("power",),
    "tools": ("record",),
    "secrets_at_rest": ("restart",),
    "allow_plain": ("record",),
    "build": ("exec",),
    "lifecycle": ("record",),
    "timeouts": ("record",),
}
"""The first lead is the one that settles the field. A port's change hides the old one once the new one is checked."""

ANCHORS: Mapping[Lead, str] = {"exec": "package", "host": "hosted", "idle": "idle"}
"""Lead → the field that is in a record once its action succeeded for the first time; for the others: ``size``."""

EXEC_FIELDS = tuple(name for name, leads in FIELDS.items() if leads[0] == "exec" and name != "port")
"""What the set-up in the guest is made from, apart from the port (which is chosen, not always declared)."""

KEYS: Mapping[str, str] = {"version": "package"}
"""Keys of a stack file that are no field of their own."""


def leads(field: str, traits: Traits) -> tuple[Lead, ...]:
    """What a change of this field leads to at this provider."""
    return ("replace",) if field in traits.replace_on else FIELDS[field]


def never_done(field: str, recorded: Mapping[str, Any]) -> bool:
    """Whether the action that settles this field has never succeeded for this record."""
    return ANCHORS.get(FIELDS[field][0], "size") not in recorded


def settled_by(field: str, lead: Lead) -> bool:
    """Whether this lead's action, once done, makes the field as declared."""
    return FIELDS[field][0] == lead


def in_place(changed: Sequence[str], traits: Traits) -> bool:
    """Whether these restart fields can all be changed on the running sandbox."""
    return all(field in traits.in_place for field in changed)


def ignored(spec: ServerSpec) -> frozenset[str]:
    """The fields that ``lifecycle.ignore`` names, the keys ``version`` and ``package`` being one field."""
    keys = spec.lifecycle.ignore
    return frozenset(KEYS.get(key, key) for key in keys) & FIELDS.keys() - {"lifecycle"} if keys else frozenset()


def keep_ignored(
    spec: ServerSpec, view: Mapping[str, Any], recorded: Mapping[str, Any]
) -> tuple[ServerSpec, Mapping[str, Any]]:
    """The spec and its recorded view with ignored fields as they were last applied.

    So whatever another change sends along never carries an ignored one. The contents of files are not recorded: for
    these the view alone goes back, and none is written.
    """
    names = [name for name in ignored(spec) if name in recorded]
    if not names:
        return spec, view
    values = {name: _REBUILD.get(name, _same)(recorded[name]) for name in names if name != "files"}
    return replace(spec, **values), {**view, **{name: recorded[name] for name in names}}


def _same(value: Any) -> Any:
    return value


def _tuple(value: Any) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)


def _package(value: Any) -> Package | None:
    return None if value is None else Package(**{**value, "extras": tuple(value["extras"])})


def _egress(value: Any) -> Egress:
    rules = (EgressRule(rule["host"], tuple(rule["ports"]), rule["private"]) for rule in value["rules"])
    return Egress(value["kind"], tuple(rules))


_REBUILD: Mapping[str, Callable[[Any], Any]] = {
    "package": _package,
    "command": _tuple,
    "args": _tuple,
    "allow_plain": _tuple,
    "secrets": lambda value: {name: SecretRef(**ref) for name, ref in value.items()},
    "bridge": lambda value: None if value is None else Bridge(**value),
    "egress": _egress,
    "mounts": lambda value: {path: Mount(**mount) for path, mount in value.items()},
    "build": lambda value: Build(value["scripts"], tuple(value["hosts"])),
}
