"""What the proxy asks about sandboxes, and tells of them (``proxy.Guests``)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime

from mcpiac.local.proxy import WAKE_SECONDS, ActivityKind, Condition, Unavailable
from mcpiac.local.sandbox import Sandbox
from mcpiac.wire import ServiceItem

_YOUNG_SECONDS = 15.0
"""A service that runs for less may not listen yet."""


class Guests:
    """Answers from the sandboxes as they are now."""

    def __init__(self, boxes: Mapping[str, Sandbox]) -> None:
        self._boxes = boxes

    def running(self, sandbox: str) -> int | None:
        box = self._boxes.get(sandbox)
        return None if box is None else box.pid

    async def wake(self, sandbox: str) -> int:
        box = self._boxes.get(sandbox)
        if box is not None and box.phase == "starting":
            await box.settled(WAKE_SECONDS)
        if box is None or not box.is_up:
            raise Unavailable(self.describe(sandbox, 0))
        box.wake()
        pid = box.pid
        assert pid is not None
        return pid

    def activity(self, sandbox: str, kind: ActivityKind, stream: bool) -> None:
        box = self._boxes.get(sandbox)
        if box is None:
            return
        if kind == "begin" and not stream:
            box.begin()
        elif kind == "end" and not stream:
            box.end()
        else:
            box.active()

    def describe(self, sandbox: str, port: int) -> Condition:
        box = self._boxes.get(sandbox)
        if box is None:
            return Condition("gone", "the sandbox does not exist any more")
        record = box.record
        if box.phase in ("down", "stopping"):
            if record.expired:
                return Condition("expired", "the sandbox was stopped when its ttl ended: run `mcpiac apply --renew`")
            return Condition("stopped", "the sandbox is stopped: run `mcpiac apply`")
        if box.phase == "failed":
            return Condition(
                "error", f"{record.error or 'the sandbox failed'}: run `mcpiac doctor`, then apply again"
            )
        if box.paused_at is not None:
            return Condition("paused", "the sandbox is paused")
        if box.phase == "starting" or not box.told:
            return Condition("starting", "the sandbox is starting")
        for name, service in box.services.items():
            if service.state in ("backoff", "failed"):
                why = service.last_exit or "no exit status"
                return Condition("error", f"the service {name} does not stay up ({why}): run `mcpiac logs {name}`")
            if service.state == "starting" or _young(service):
                return Condition("starting", f"the service {name} is starting")
        return Condition("running", "the sandbox runs, but no service listens there")


def _young(service: ServiceItem) -> bool:
    """Whether a running service may not listen yet."""
    if service.state != "running" or not service.since:
        return False
    return abs(time.time() - _seconds(service.since)) < _YOUNG_SECONDS


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
