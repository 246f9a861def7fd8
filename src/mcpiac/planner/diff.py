"""Desired, recorded and live → what differs, as people read it.

Equality is asked first; deepdiff (0.2 s to import) only explains nested values once something differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from mcpiac.model.change import FieldChange
from mcpiac.model.codec import recorded_view
from mcpiac.model.live import Found, HostedPort
from mcpiac.model.record import HostedRecord, SandboxRecord, ServerRecord
from mcpiac.model.spec import ServerSpec
from mcpiac.planner import words
from mcpiac.planner.fields import ignored, never_done

View = Mapping[str, Any]


def changed(view: View, record: ServerRecord, sandbox: SandboxRecord, port: int) -> tuple[str, ...]:
    """The fields whose declared value is not the one last applied, in the order of the spec.

    The port is the chosen one. ``secrets`` are not looked at: names and sources alone decide nothing (``traces``).
    """
    recorded = record.spec
    if view == recorded and port == record.port and _agrees(view, sandbox):
        return ()
    names = [
        name for name, value in view.items() if name not in ("port", "secrets") and _differs(name, value, recorded)
    ]
    if port != record.port or never_done("port", recorded):
        names.append("port")
    for name in ("size", "ttl", "idle"):
        if name not in names and view[name] != getattr(sandbox, name) and name in recorded:
            names.append(name)
    return tuple(name for name in view if name in names)


def _differs(name: str, value: Any, recorded: View) -> bool:
    """Against what was last applied: nothing, if never; the default, if by a mcpiac that did not know the field."""
    if name in recorded:
        return bool(recorded[name] != value and _compared(name, recorded[name]) != _compared(name, value))
    return never_done(name, recorded) or value != _defaults()[name]


def _compared(name: str, value: Any) -> Any:
    """``moved_from`` says where a record was, which is nothing to change: it may stay in the file, or go."""
    return {**value, "moved_from": None} if name == "lifecycle" else value


@cache
def _defaults() -> View:
    return recorded_view(ServerSpec())


def _agrees(view: View, sandbox: SandboxRecord) -> bool:
    return bool(view["size"] == sandbox.size and view["ttl"] == sandbox.ttl and view["idle"] == sandbox.idle)


def explain(
    names: tuple[str, ...], view: View, record: ServerRecord, sandbox: SandboxRecord, port: int
) -> tuple[FieldChange, ...]:
    """The changed fields that were applied before, each with both sides; never one with equal sides."""
    found: list[FieldChange] = []
    for name in names:
        if never_done(name, record.spec):
            continue
        before = _compared(name, record.spec.get(name, _defaults()[name]))
        after = _compared(name, view[name])
        if name == "port":
            before, after = record.port, port
        elif name in ("size", "ttl", "idle"):
            before = getattr(sandbox, name)
        parts = list(_EXPLAIN.get(name, _scalar)(name, before, after))
        found += [part for part in parts if part.before != part.after]
    return tuple(found)


def secret_fields(names: Mapping[str, str]) -> tuple[FieldChange, ...]:
    """Changed secrets: that they changed, and nothing else."""
    return tuple(FieldChange(f"secrets.{name}", secret=True) for name in sorted(names))


def source_fields(names: tuple[str, ...], view: View, record: ServerRecord) -> tuple[FieldChange, ...]:
    """Secrets that now come from another place with the same value."""
    old, new = record.spec["secrets"], view["secrets"]
    return tuple(FieldChange(f"secrets.{name}.source", old[name]["source"], new[name]["source"]) for name in names)


# drift: live against the record


def hosted_drift(
    spec: ServerSpec, recorded: HostedRecord | None, live: Mapping[int, HostedPort] | None, keep: int | None
) -> tuple[tuple[FieldChange, str], ...]:
    """How live hosted ports differ from the record, each with a sentence. ``keep``: the port that we mean to host.

    The URL is not compared: hosting a port again could not change it back. What is being changed by the file anyway
    (the recorded port is not the one to keep) is no drift.
    """
    skip = ignored(spec)
    if live is None or "hosted" in skip:
        return ()
    drift: list[tuple[FieldChange, str]] = []
    for port in sorted(live.keys() - {recorded.port if recorded else None, keep}):
        change = FieldChange(f"hosted.{port}", f"hosted, {live[port].access}", "not hosted", drift=True)
        drift.append((change, f"port {port} is hosted, which the stack does not declare"))
    if recorded is None or recorded.port != keep:
        return tuple(drift)
    now = live.get(keep)
    if now is None:
        change = FieldChange(f"hosted.{keep}", "not hosted", f"hosted, {recorded.access}", drift=True)
        return (*drift, (change, f"port {keep} is no longer hosted"))
    if now.access != recorded.access and "access" not in skip:
        change = FieldChange("access", now.access, recorded.access, drift=True)
        drift.append((change, f"port {keep} is {now.access} now"))
    if now.localhost != recorded.localhost and "bind" not in skip:
        sides = ("127.0.0.1", "any address")
        change = FieldChange("hosted.relay", sides[not now.localhost], sides[now.localhost], drift=True)
        drift.append((change, f"port {keep} is relayed to {sides[not now.localhost]} now"))
    if now.title != recorded.title and "title" not in skip:
        change = FieldChange("title", now.title or "none", recorded.title or "none", drift=True)
        drift.append((change, f"port {keep} has another title now"))
    return tuple(drift)


def idle_drift(spec: ServerSpec, sandbox: SandboxRecord, found: Found | None) -> tuple[FieldChange, str] | None:
    """The idle delay was changed by somebody else. Unknown is no drift."""
    if found is None or found.idle is None or "idle" in ignored(spec) or found.idle == (sandbox.idle or 0):
        return None
    now, ours = words.idle(found.idle), words.idle(sandbox.idle)
    return FieldChange("idle", now, ours, drift=True), f"the idle delay is {now} now"


def size_drift(spec: ServerSpec, sandbox: SandboxRecord, found: Found | None) -> tuple[FieldChange, str] | None:
    """The sandbox was given another size by somebody else. Unknown is no drift."""
    if found is None or found.size is None or found.size == sandbox.size:
        return None
    if not words.known_size(found.size) or "size" in ignored(spec):
        return None
    return FieldChange("size", found.size, sandbox.size, drift=True), f"its size is {found.size} now"


# one explainer a shape of field


def _text(value: Any) -> Any:
    return None if value == "" else value


def _scalar(name: str, before: Any, after: Any) -> Iterator[FieldChange]:
    yield FieldChange(name, _text(before), _text(after))


def _said(say: Callable[[Any], Any]) -> Callable[[str, Any, Any], Iterator[FieldChange]]:
    def explain_one(name: str, before: Any, after: Any) -> Iterator[FieldChange]:
        yield FieldChange(name, say(before), say(after))

    return explain_one


def _package(name: str, before: Any, after: Any) -> Iterator[FieldChange]:
    if before and after and words.package_name(before) == words.package_name(after):
        yield FieldChange("version", before["version"], after["version"])
    else:
        yield FieldChange(name, words.package(before), words.package(after))


def _keyed(say: Callable[[Any], Any]) -> Callable[[str, Any, Any], Iterator[FieldChange]]:
    def explain_each(name: str, before: Any, after: Any) -> Iterator[FieldChange]:
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                yield FieldChange(f"{name}.{key}", say(before.get(key)), say(after.get(key)))

    return explain_each


def _nested(name: str, before: Any, after: Any) -> Iterator[FieldChange]:
    if before is None or after is None:
        yield FieldChange(name, before, after)
        return
    from deepdiff import DeepDiff

    tree = DeepDiff(before, after, view="tree", verbose_level=2)
    found = [(_path(name, item.path(output_format="list")), item) for kind in tree.values() for item in kind]
    for path, item in sorted(found, key=lambda pair: pair[0]):
        yield FieldChange(path, _side(item.t1), _side(item.t2))


def _path(name: str, steps: list[Any]) -> str:
    return name + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _side(value: Any) -> Any:
    return None if type(value).__name__ == "NotPresent" else value


_EXPLAIN: Mapping[str, Callable[[str, Any, Any], Iterator[FieldChange]]] = {
    "package": _package,
    "command": _nested,
    "args": _nested,
    "env": _keyed(lambda value: value),
    "files": _keyed(words.file),
    "ttl": _said(words.duration),
    "idle": _said(words.idle),
    "bridge": _said(words.bridge),
    "egress": _nested,
    "mounts": _nested,
    "labels": _keyed(lambda value: value),
    "allow_plain": _nested,
    "build": _nested,
    "lifecycle": _nested,
    "timeouts": _nested,
}
