"""The truth: what exists, what was ever made, whose it is; and the sandbox API over it, as plain functions."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.sim.virtual import Clock

API = "/api/v1"
USABLE = ("ready", "idle", "running")
CANARY = "CANARY-7f3a-CANARY"
PAGE = 3


class Refuse(Exception):
    """An error answer."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


@dataclass
class Box:
    """One sandbox as it really is. ``service`` is the set-up that runs in it, as JSON text."""

    id: str
    key: str
    env: dict[str, str]
    size: str
    created: float
    ready_at: float
    deadline: float | None = None
    name: str = ""
    state: str = "ready"
    idle: int = 15
    hosted: dict[int, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    service: str = ""
    foreign: bool = False

    @property
    def owner(self) -> str | None:
        return self.env.get("MCPIAC_OWNER")


class World:
    """An account at a service. ``extended``: lists carry owner, ports and idle, as the embedded backend's do."""

    def __init__(self, clock: Clock, rng: random.Random, *, extended: bool) -> None:
        self.clock = clock
        self.rng = rng
        self.extended = extended
        self.boxes: dict[str, Box] = {}
        self.keys: dict[str, str] = {}
        self.made: list[Box] = []
        self.broken_setups = 0
        self.instance = f"inst-{rng.getrandbits(32):08x}"
        self.processes: dict[int, tuple[float, int, str, str]] = {}
        self.tokens: dict[tuple[str, int], str] = {}
        self.shadow: list[tuple[float, dict[str, Any]]] = []
        self.ids = 0

    # -- what others do ---------------------------------------------------------------------------------------------

    def foreign(self, name: str, owner: str | None) -> Box:
        """Somebody else's sandbox, with a name that looks like ours."""
        box = self._box("", {"MCPIAC_OWNER": owner} if owner else {}, "small", None)
        box.name, box.foreign, box.ready_at = name, True, 0.0
        return box

    def ours(self, lineage: str) -> list[Box]:
        """All live sandboxes with a lineage's marker, foreign ones apart."""
        return [b for b in self.boxes.values() if not b.foreign and (b.owner or "").startswith(f"{lineage}/")]

    def tick(self) -> None:
        """Deadlines that have passed."""
        for box in self.boxes.values():
            if box.deadline is not None and box.deadline <= self.clock.time() and box.state in USABLE:
                box.state = "archived"

    # -- the API ----------------------------------------------------------------------------------------------------

    def handle(self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: Any) -> Any:
        """One request's effect and answer; raises ``Refuse``."""
        self.tick()
        for pattern, verb, action in _ROUTES:
            match = pattern.fullmatch(path.removeprefix(API))
            if match and verb == method:
                return action(self, match.groupdict(), query, headers, body)
        raise Refuse(404, "no_such_route")

    def _box(self, key: str, env: dict[str, str], size: str, ttl: int | None) -> Box:
        self.ids += 1
        now = self.clock.time()
        box = Box(f"sbx_{self.ids:04}", key, env, size, now, now + self.rng.choice((0.0, 0.5, 4.0)))
        box.deadline = None if ttl is None else now + ttl
        self.boxes[box.id] = box
        self.made.append(box)
        return box

    def get(self, id: str) -> Box:
        if id not in self.boxes:
            raise Refuse(404, "sandbox_not_found")
        return self.boxes[id]

    def usable(self, id: str) -> Box:
        box = self.get(id)
        if self.state(box) == "provisioning":
            raise Refuse(409, "sandbox_starting")
        if box.state not in USABLE:
            raise Refuse(409, "sandbox_not_ready")
        return box

    def state(self, box: Box) -> str:
        return "provisioning" if box.state == "ready" and self.clock.time() < box.ready_at else box.state

    def view(self, box: Box) -> dict[str, Any]:
        seen: dict[str, Any] = {
            "id": box.id,
            "name": box.name or None,
            "state": self.state(box),
            "type": box.size,
            "createdAt": stamp(box.created),
            "archiveAfter": None if box.deadline is None else stamp(box.deadline),
        }
        if self.extended:
            seen |= {
                "owner": box.owner,
                "hosted": list(box.hosted.values()),
                "idleMinutes": box.idle,
                "expired": box.state == "archived" and box.deadline is not None and box.deadline <= self.clock.time(),
            }
        return seen


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _list(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    ids = sorted(world.boxes)
    cursor = query.get("cursor", "")
    # The daemon's cursor is the last id; a service may count, so that what is deleted shifts the pages.
    left = [id for id in ids if id > cursor] if world.extended else ids[int(cursor or 0) :]
    page, more = left[:PAGE], len(left) > PAGE
    after = page[-1] if world.extended and page else str(int(cursor or 0) + PAGE) if more else None
    info = {"nextCursor": after if more else None, "hasMore": more, "limit": PAGE}
    return {"sandboxes": [world.view(world.boxes[id]) for id in page], "pageInfo": info}


def _create(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    key = headers["idempotency-key"]
    box = world.boxes.get(world.keys.get(key, ""))
    if box is None:
        box = world._box(key, dict(body.get("env") or {}), body["type"], body.get("ttlSeconds"))
        world.keys[key] = box.id
    return {"status": "provisioning", "sandbox": world.view(box)}


def _get(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    return {"sandbox": world.view(world.get(at["id"]))}


def _patch(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    box = world.get(at["id"])
    box.name = body.get("name", box.name)
    box.idle = body.get("idleMinutes", box.idle)
    if "ttlSeconds" in body:
        box.deadline = None if body["ttlSeconds"] is None else world.clock.time() + body["ttlSeconds"]
    return {"sandbox": world.view(box)}


def _delete(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    box = world.get(at["id"])
    if headers.get("x-sandboxer-confirm-delete") != box.id:
        raise Refuse(400, "confirmation_required")
    del world.boxes[box.id]
    operation = {"id": f"del-{box.id}", "targetId": box.id, "status": "completed", "requestedAt": stamp(0)}
    return {"operation": operation}


def _stop(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    box = world.get(at["id"])
    if world.state(box) not in USABLE:
        raise Refuse(409, "sandbox_not_ready")
    box.state = "archived"
    return {"id": box.id, "status": "archived"}


def _resume(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    box = world.get(at["id"])
    if world.state(box) in (*USABLE, "provisioning"):
        return {"id": box.id, "status": "running"}
    box.env = dict(body["env"]) if body.get("env") is not None else box.env
    box.size = body.get("type") or box.size
    if "ttlSeconds" in body:
        box.deadline = None if body["ttlSeconds"] is None else world.clock.time() + body["ttlSeconds"]
    box.state, box.ready_at = "ready", world.clock.time() + world.rng.choice((0.0, 2.0))
    return {"id": box.id, "status": "running"}


def _hosts(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    box = world.get(at["id"])
    return {"ports": [_with_token(world, box, item) for item in box.hosted.values()]}


def _host(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    box, port = world.usable(at["id"]), body["port"]
    world.tokens.setdefault((box.id, port), f"tok{CANARY}{world.rng.getrandbits(64):016x}")
    public = bool(body.get("public"))
    box.hosted[port] = {
        "port": port,
        "url": f"https://{box.id}-{port}.example/",
        "access": "public" if public else "private",
        "isProtected": not public,
        "localhost": bool(body.get("localhost")),
        "title": body.get("title"),
    }
    return _with_token(world, box, box.hosted[port])


def _with_token(world: World, box: Box, item: dict[str, Any]) -> dict[str, Any]:
    if item["access"] == "public":
        return item
    return {**item, "url": f"{item['url']}?_token={world.tokens[box.id, item['port']]}"}


def _hide(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    world.get(at["id"]).hosted.pop(int(query["port"]), None)
    return {}


def _write(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    data = base64.b64decode(body["content"]) if body["encoding"] == "base64" else body["content"].encode()
    world.usable(at["id"]).files[body["path"]] = data
    return {"path": body["path"], "encoding": "utf8", "size": len(data)}


def _read(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    box = world.usable(at["id"])
    if query["path"] not in box.files:
        raise Refuse(404, "file_not_found")
    data = box.files[query["path"]]
    return {
        "path": query["path"],
        "encoding": "base64",
        "size": len(data),
        "content": base64.b64encode(data).decode(),
    }


def _packages(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    world.usable(at["id"])
    items = [{"package": p, "path": "/opt/p", "entry": ["/opt/p/run"], "integrity": "sha"} for p in body["packages"]]
    return {"type": "installed", "installed": items}


def _command(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    box = world.usable(at["id"])
    exit_code, out, err = _guest(world, box, body["command"])
    if not body.get("detached"):
        return {"exitCode": exit_code, "stdout": out, "stderr": err}
    pid = len(world.processes) + 1
    world.processes[pid] = (world.clock.time() + world.rng.choice((0.1, 3.0)), exit_code, out, err)
    return {"processId": pid, "pid": pid, "command": "x", "startedAt": stamp(world.clock.time())}


def _process(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    world.usable(at["id"])
    ends, exit_code, out, err = world.processes[int(at["pid"])]
    if world.clock.time() < ends:
        return {"processId": int(at["pid"]), "status": "running", "running": True}
    return {
        "processId": int(at["pid"]),
        "status": "exited",
        "running": False,
        "exitCode": exit_code,
        "stdout": out if query.get("stdoutOffset", "0") == "0" else "",
        "stderr": err,
        "stdoutNextOffset": len(out),
        "stderrNextOffset": len(err),
    }


def _guest(world: World, box: Box, command: str) -> tuple[int, str, str]:
    """What a command in the guest does: a set-up is believed; a server that fails talks about its environment."""
    if "setup.json" in command:
        if world.broken_setups:
            world.broken_setups -= 1
            words = " ".join(box.env.values())
            fault = {"summary": f"the server exited: {words}", "code": "server-exited", "lines": [words, words]}
            return 1, json.dumps({"mcpiac-setup-error": fault}) + "\n", words
        path = next(name for name in box.files if name.endswith(".setup.json") and name.rsplit("/", 1)[1] in command)
        values = json.loads(box.files[path])
        for item in values["files"]:
            if item.get("write") and "content" in item and item["content"] is not None:
                box.files[item["path"]] = base64.b64decode(item["content"])
        for name in values["remove"]:
            box.files.pop(name, None)
        box.service = json.dumps({k: values[k] for k in ("port", "bridge", "words", "env", "pass")}, sort_keys=True)
        return 0, json.dumps({"mcpiac-setup": {"listening": [f"127.0.0.1:{values['port']}"]}}) + "\n", ""
    if "MCPIAC_OWNER" in command:
        return 0, (box.owner or "") + "\n", ""
    return 0, "answers from inside\n", ""


def _instance(world: World, at: Any, query: Any, headers: Any, body: Any) -> Any:
    return {"id": world.instance, "protocol": 1, "version": "1"}


Route = tuple[re.Pattern[str], str, Callable[..., Any]]
_BOX = "/sandboxes/(?P<id>[^/]+)"
_ROUTES: list[Route] = [
    (re.compile(path), verb, action)
    for path, verb, action in (
        ("/sandboxes", "GET", _list),
        ("/sandboxes", "POST", _create),
        (_BOX, "GET", _get),
        (_BOX, "PATCH", _patch),
        (_BOX, "DELETE", _delete),
        (f"{_BOX}/stop", "POST", _stop),
        (f"{_BOX}/resume", "POST", _resume),
        (f"{_BOX}/host", "GET", _hosts),
        (f"{_BOX}/host", "POST", _host),
        (f"{_BOX}/host", "DELETE", _hide),
        (f"{_BOX}/files", "PUT", _write),
        (f"{_BOX}/files", "GET", _read),
        (f"{_BOX}/packages", "PUT", _packages),
        (f"{_BOX}/commands", "POST", _command),
        (f"{_BOX}/commands/(?P<pid>[0-9]+)", "GET", _process),
        (f"{_BOX}/commands/(?P<pid>[0-9]+)", "DELETE", lambda *_: {}),
        ("/instance", "GET", _instance),
    )
]
