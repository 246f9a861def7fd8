"""An action and its answer become what changes in the state: pure, one function a verb.

``planner/payloads.py`` says what each effect is; these functions obey it. Each takes the records as they are now and
answers whole records in their place, so that an effect never costs more for a larger fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from mcpiac.model.action import Action
from mcpiac.model.codec import recorded_view
from mcpiac.model.live import Found, HostedPort
from mcpiac.model.outcome import ProviderError
from mcpiac.model.record import (
    Effect,
    Fingerprint,
    HostedRecord,
    Instance,
    SandboxRecord,
    ServerRecord,
)
from mcpiac.model.spec import ServerSpec

NOTHING = Effect()
Traces = Mapping[str, Fingerprint]


class Records:
    """The two records that an action is about, as they are now (either may be missing)."""

    def __init__(self, sandbox: SandboxRecord | None, server: ServerRecord | None) -> None:
        self.sandbox = sandbox
        self.server = server


def traces(payload: Mapping[str, Any]) -> dict[str, Fingerprint]:
    """The traces that a payload carries."""
    return {name: Fingerprint(**trace) for name, trace in payload.get("fingerprints", {}).items()}


def created(
    action: Action, found: Found, instance: Instance | None, spec: ServerSpec | None, sent: Traces, began_at: str
) -> Effect:
    """A new sandbox and a new server record that points to it, with only the settled fields.

    ``spec`` None: what was asked for is not known any more (an adopted one): nothing counts as applied.
    """
    payload = action.payload
    box = SandboxRecord(
        id=found.id,
        key=action.key or "",
        owner=payload["owner"],
        created_at=found.created_at or began_at,
        size=payload["size"],
        ttl=payload["ttl"],
        egress=payload["egress"],
        secrets=dict(sent),
    )
    server = ServerRecord(
        sandbox=action.sandbox,
        spec=_unproven(payload),
        variable=payload["variable"],
        port=payload["port"],
    )
    if spec is not None:
        server = _done(action, server, spec)
    return Effect({action.sandbox: box}, {action.server: server}, instance)


def not_usable(action: Action, effect: Effect, why: str) -> Effect:
    """A created sandbox that exists and did not become usable: recorded, and nothing counts as applied."""
    boxes = {key: replace(box, tainted=why, secrets={}) for key, box in effect.sandboxes.items() if box}
    spec = _unproven(action.payload)
    servers = {name: replace(one, spec=spec, inputs={}, tainted=why) for name, one in effect.servers.items() if one}
    return Effect(boxes, servers, effect.instance)


def _unproven(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a sandbox of which only this is certain: these secrets were sent into it, from wherever, so that
    the next plan replaces its environment, also where none is declared any more."""
    return {"secrets": {name: {"source": "", "version": None} for name in payload["secrets"]}}


def set_up(
    action: Action,
    now: Records,
    spec: ServerSpec,
    bridge: Mapping[str, Any] | None,
    version: str,
    facts: Mapping[str, Any],
) -> Effect:
    """The server is set up in its guest."""
    server = _server(now)
    files = {p: f for p, f in recorded_view(spec)["files"].items() if "sha256" in f}
    server = replace(
        _done(action, server, spec),
        port=action.payload["port"],
        files={path: file["sha256"] for path, file in files.items()},
        setup={**facts, "bridge": bridge, "version": version},
        tainted=None,
    )
    return _both(action, server, _healed(now))


def hosted(action: Action, now: Records, spec: ServerSpec | None, answer: HostedPort) -> Effect:
    """A port has a URL."""
    url = answer.url.split("?", 1)[0].split("#", 1)[0]
    record = HostedRecord(answer.port, url, answer.access, answer.localhost, answer.title)
    return _both(action, replace(_done(action, _server(now), spec), hosted=record), None)


def hidden(action: Action, now: Records, spec: ServerSpec | None) -> Effect:
    """A port has none any more; only the server that still points here and to it forgets its URL."""
    server = now.server
    if server is None:
        return NOTHING
    server = _done(action, server, spec)
    ours = server.hosted is not None and server.hosted.port == action.payload["port"]
    if ours and server.sandbox == action.sandbox:
        server = replace(server, hosted=None)
    return _both(action, server, None)


def boxed(action: Action, now: Records, spec: ServerSpec | None, **values: Any) -> Effect:
    """Inputs of the sandbox that were set: ``idle``, ``ttl``, ``name``, ``stopped``."""
    box = replace(_sandbox(now), **values)
    return _both(action, _done(action, now.server, spec) if now.server is not None else None, box)


def powered(
    action: Action, now: Records, spec: ServerSpec | None, sent: Traces | None, *, ttl: bool = True
) -> Effect:
    """Resumed or restarted with what it is given from outside. ``sent`` None: the environment stayed as it was.

    Files that hold a changed secret are written by the exec that follows: until it ran, the server is tainted, so
    that a run cut in between is gone on with.
    """
    payload = action.payload
    box = replace(
        _sandbox(now),
        size=payload["size"],
        egress=payload["egress"],
        owner=payload["owner"] if sent is not None else _sandbox(now).owner,
        secrets=dict(sent) if sent is not None else _sandbox(now).secrets,
        stopped=False,
        tainted=None,
    )
    if ttl:
        box = replace(box, ttl=payload["ttl"])
    server = _done(action, now.server, spec) if now.server is not None else None
    if server is not None and spec is not None and sent is not None:
        changed = {name for name in sent if sent[name] != _sandbox(now).secrets.get(name)}
        if _unwritten(spec, changed):
            server = replace(server, tainted="its files that hold a changed secret are not written yet")
    return _both(action, server, box)


def _unwritten(spec: ServerSpec, changed: set[str]) -> bool:
    return "files" not in spec.lifecycle.ignore and any(file.secret in changed for file in spec.files.values())


def deleted(action: Action) -> Effect:
    """The sandbox is gone, and with ``forget`` the server's record too."""
    servers: dict[str, ServerRecord | None] = {action.server: None} if action.payload["forget"] else {}
    return Effect({action.sandbox: None}, servers)


def checked(action: Action, now: Records, spec: ServerSpec | None) -> Effect:
    """It answers as it should."""
    server = replace(_server(now), tainted=None)
    return _both(action, _done(action, server, spec), _healed(now))


def tainted(action: Action, now: Records, why: str) -> Effect:
    """An exec or check that failed."""
    return Effect() if now.server is None else Effect({}, {action.server: replace(now.server, tainted=why)})


def not_hosted(action: Action, now: Records) -> Effect:
    """A check found that the port has no URL any more."""
    server = _server(now)
    spec = {name: value for name, value in server.spec.items() if name != "hosted"}
    return Effect({}, {action.server: replace(server, hosted=None, spec=spec, tainted="check: it is not hosted")})


def recorded(
    action: Action,
    now: Records,
    spec: ServerSpec | None,
    sandbox: Callable[[str], SandboxRecord | None],
    server: Callable[[str], ServerRecord | None],
) -> Effect:
    """What changes without a call. ``sandbox`` and ``server`` look up other records."""
    payload = action.payload
    match payload["what"]:
        case "settle":
            return _both(action, _done(action, _server(now), spec), None)
        case "forget":
            return Effect({action.sandbox: None}, {action.server: None})
        case "move":
            return _moved(action, now, server(payload["from"]))
        case "accept":
            return _accepted(action, now)
        case "instance":
            old = Instance(**payload["instance"])
            boxes = {key: sandbox(key) for key in payload["sandboxes"]}
            return Effect({key: replace(box, instance=old) for key, box in boxes.items() if box is not None})
        case other:
            raise ValueError(f"no such record: {other}")


def _moved(action: Action, now: Records, old: ServerRecord | None) -> Effect:
    source = action.payload["from"]
    if old is None:
        return NOTHING
    boxes = {}
    if now.sandbox is not None:
        boxes[action.sandbox] = replace(now.sandbox, secrets=traces(action.payload))
    return Effect(boxes, {action.server: old, source: None})


def _accepted(action: Action, now: Records) -> Effect:
    payload = action.payload
    box = replace(_sandbox(now), **{key: payload[key] for key in ("idle", "size", "stopped") if key in payload})
    server = now.server
    if server is not None and "hosted" in payload:
        live = payload["hosted"]
        server = replace(server, hosted=None if live is None else HostedRecord(**live))
    return _both(action, server, box)


def _done(action: Action, server: ServerRecord, spec: ServerSpec | None) -> ServerRecord:
    """The record with this action's fields settled, as the last successful run of its verb."""
    payload = action.payload
    settles: Iterable[str] = payload.get("settles", ())
    if settles and spec is not None:
        view = recorded_view(spec)
        server = replace(server, spec={**server.spec, **{name: view[name] for name in settles}})
    if "digest" in payload:
        server = replace(server, inputs={**server.inputs, action.verb: payload["digest"]})
    return server


def _both(action: Action, server: ServerRecord | None, box: SandboxRecord | None) -> Effect:
    return Effect(
        {action.sandbox: box} if box is not None else {}, {action.server: server} if server is not None else {}
    )


def _healed(now: Records) -> SandboxRecord | None:
    box = now.sandbox
    return replace(box, tainted=None) if box is not None and box.tainted is not None else None


def _server(now: Records) -> ServerRecord:
    if now.server is None:
        raise Unrecorded("the server is not recorded")
    return now.server


def _sandbox(now: Records) -> SandboxRecord:
    if now.sandbox is None:
        raise Unrecorded("the sandbox is not recorded")
    return now.sandbox


class Unrecorded(ProviderError):
    """An action about something that no record knows: the plan does not fit this state."""

    def __init__(self, message: str) -> None:
        super().__init__("rejected", message, hint="run `mcpiac plan` again: this plan does not fit the state")
