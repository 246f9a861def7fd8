"""The contract server's sandboxes: plain data in memory, changed only by the calls of the API."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

USABLE = ("ready", "idle", "running")
RESERVED = {"SANDBOXER_TOKEN", "SANDBOXER_API_URL", "AGENT_ID", "PRODUCT_MODE", "ENVIRONMENT_ID", "SANDBOXER_ID"}
SIZES = {"small": (2, 4), "default": (4, 8), "large": (8, 16), "xlarge": (16, 32)}


class Refuse(Exception):
    """An error answer."""

    def __init__(self, status: int, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.message, self.details = status, code, message, details


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class Box:
    """One sandbox."""

    id: str
    size: str
    env: dict[str, str]
    created: float
    ready_at: float
    key: str = ""
    name: str | None = None
    deadline: float | None = None
    state: str = "ready"
    error: str | None = None
    idle: int = 15
    paused_at: float | None = None
    egress: Any = "none"
    hosted: dict[int, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[int, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    packages: list[dict[str, Any]] = field(default_factory=list)
    processes: dict[int, Any] = field(default_factory=dict)

    @property
    def now(self) -> str:
        return "provisioning" if self.state == "ready" and time.time() < self.ready_at else self.state


class World:
    """All sandboxes of one account. ``extended``: the list carries what the embedded backend's does."""

    def __init__(self, *, extended: bool, boot: float, hosted_at: str) -> None:
        self.extended = extended
        self.boot = boot
        self.hosted_at = hosted_at
        self.boxes: dict[str, Box] = {}
        self.by_key: dict[str, str] = {}
        self.deletions: dict[str, dict[str, Any]] = {}
        self.instance = secrets.token_hex(8)
        self.most_running = 0

    def get(self, id: str) -> Box:
        box = self.boxes.get(id)
        if box is None:
            raise Refuse(404, "sandbox_not_found", f"There is no sandbox {id}.")
        return box

    def usable(self, id: str) -> Box:
        box = self.get(id)
        if box.now == "provisioning":
            raise Refuse(409, "sandbox_starting", "The sandbox is starting.")
        if box.now not in USABLE:
            raise Refuse(409, "sandbox_not_ready", f"The sandbox is {box.now}. Resume it first.")
        box.paused_at = None
        return box

    def create(self, body: dict[str, Any], key: str | None) -> tuple[Box, bool]:
        """The sandbox, and whether it is new."""
        if key and key in self.by_key and self.by_key[key] in self.boxes:
            return self.boxes[self.by_key[key]], False
        env = _checked_env(body.get("env") or {})
        size = body.get("type", "default")
        if size not in SIZES:
            raise Refuse(400, "invalid_type", f"type must be one of {', '.join(SIZES)}")
        now = time.time()
        box = Box(f"sbx_{secrets.token_hex(6)}", size, env, now, now + self.boot, key=key or "")
        box.egress = body.get("egress", "none")
        self._ttl(box, body.get("ttlSeconds", 3600))
        self.boxes[box.id] = box
        if key:
            self.by_key[key] = box.id
        return box, True

    def update(self, id: str, body: dict[str, Any]) -> Box:
        box = self.get(id)
        if "name" in body:
            box.name = body["name"]
        if "ttlSeconds" in body:
            self._ttl(box, body["ttlSeconds"])
        if self.extended and "idleMinutes" in body:
            box.idle = body["idleMinutes"]
        if self.extended and "egress" in body:
            box.egress = body["egress"]
        return box

    def _ttl(self, box: Box, seconds: int | None) -> None:
        if seconds is not None and (not isinstance(seconds, int) or seconds < 60):
            raise Refuse(400, "invalid_ttl", "ttlSeconds must be null or at least 60")
        box.deadline = None if seconds is None else time.time() + seconds

    def stop(self, id: str) -> Box:
        box = self.get(id)
        if box.now not in USABLE:
            raise Refuse(409, "sandbox_not_ready", f"The sandbox is {box.now}.")
        box.state, box.paused_at = "archived", None
        return box

    def resume(self, id: str, body: dict[str, Any]) -> Box:
        box = self.get(id)
        if box.now in USABLE or box.now == "provisioning":
            return box
        if "env" in body and body["env"] is not None:
            box.env = _checked_env(body["env"])
        if body.get("type"):
            box.size = body["type"]
        if "ttlSeconds" in body:
            self._ttl(box, body["ttlSeconds"])
        box.state, box.ready_at = "ready", time.time() + self.boot
        return box

    def delete(self, id: str, confirmed: str | None) -> dict[str, Any]:
        box = self.get(id)
        if confirmed != id:
            raise Refuse(400, "confirmation_required", "X-Sandboxer-Confirm-Delete must hold the sandbox id.")
        del self.boxes[box.id]
        done = self.extended
        operation = {
            "id": f"del_{secrets.token_hex(6)}",
            "kind": "sandbox",
            "targetId": id,
            "reason": "explicit",
            "status": "completed" if done else "processing",
            "stage": "completed" if done else "removing",
            "attemptCount": 1,
            "requestedAt": stamp(time.time()),
            "completedAt": stamp(time.time()) if done else None,
        }
        self.deletions[operation["id"]] = operation
        return operation

    def host(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        box, port = self.usable(id), body["port"]
        box.tokens.setdefault(port, secrets.token_urlsafe(24))
        public = bool(body.get("public"))
        item = {
            "port": port,
            "url": f"{self.hosted_at}/hosted/{id}-{port}/",
            "isProtected": not public,
            "access": "public" if public else "private",
            "localhost": bool(body.get("localhost")),
            "title": body.get("title"),
        }
        box.hosted[port] = item
        return self.with_token(box, item)

    def with_token(self, box: Box, item: dict[str, Any]) -> dict[str, Any]:
        if item["access"] == "public":
            return item
        return {**item, "url": f"{item['url']}?_token={box.tokens[item['port']]}"}

    def hide(self, id: str, port: int) -> None:
        self.get(id).hosted.pop(port, None)

    def view(self, box: Box) -> dict[str, Any]:
        vcpu, memory = SIZES[box.size]
        seen: dict[str, Any] = {
            "id": box.id,
            "name": box.name,
            "state": box.now,
            "type": box.size,
            "vcpu": vcpu,
            "memoryGB": memory,
            "createdAt": stamp(box.created),
            "updatedAt": stamp(box.created),
            "archiveAfter": None if box.deadline is None else stamp(box.deadline),
            "noEnv": True,
        }
        if box.error:
            seen["error"] = box.error
        if self.extended:
            seen |= {
                "owner": box.env.get("MCPIAC_OWNER"),
                "hosted": list(box.hosted.values()),
                "idleMinutes": box.idle,
                "pausedAt": None if box.paused_at is None else stamp(box.paused_at),
                "expired": False,
                "services": {},
            }
        return seen


def _checked_env(env: dict[str, str]) -> dict[str, str]:
    bad = [n for n in env if n in RESERVED or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", n)]
    if bad:
        raise Refuse(400, "invalid_env", f"These names cannot be set: {', '.join(bad)}")
    if len(env) > 100 or sum(len(k) + len(v) for k, v in env.items()) > 64 * 1024:
        raise Refuse(400, "invalid_env", "At most 100 variables and 64 KB.")
    return dict(env)
