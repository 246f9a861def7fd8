"""The way to the service: every request may fail, before it has its effect or after, in all the ways networks do."""

from __future__ import annotations

import asyncio
import copy
import email.utils
import json
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx
from tests.sim.virtual import Clock, Killed
from tests.sim.world import API, CANARY, Refuse, World

from mcpiac.model.record import Instance
from mcpiac.model.traits import Traits
from mcpiac.providers import api as api_module
from mcpiac.providers import base as base_module
from mcpiac.providers import inside as inside_module
from mcpiac.providers import registry
from mcpiac.providers.api import Api
from mcpiac.providers.base import WireProvider
from mcpiac.providers.local import LocalProvider

FAULTS = (
    "refused",
    "timeout_before",
    "timeout_after",
    "reset_before",
    "reset_after",
    "throttled_seconds",
    "throttled_date",
    "error_before",
    "error_after",
    "no_machine",
    "garbage",
    "cut",
    "twice",
    "stale",
)

_TEMPLATE = Api(f"https://service.example{API}", pace=api_module.LOCAL_PACE)


class Net(httpx.AsyncBaseTransport):
    """One process's connection. ``rate`` of its requests fail; ``fail_at`` fails only that one, with that fault.

    ``dead`` after the process is gone. ``requests`` counts. ``hook(number)`` runs before each: what others do.
    """

    def __init__(
        self,
        world: World,
        rng: random.Random,
        *,
        rate: float = 0.0,
        kinds: Sequence[str] = FAULTS,
        fail_at: dict[int, str] | None = None,
        hook: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.world = world
        self.rng = rng
        self.rate = rate
        self.kinds = kinds
        self.fail_at = fail_at or {}
        self.hook = hook
        self.requests = 0
        self.dead = False
        self.wrong_account = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        self.hook(self.requests)
        fault = self.fail_at.get(self.requests)
        if fault is None and self.rng.random() < self.rate:
            fault = self.rng.choice(self.kinds)
        await asyncio.sleep(self.rng.choice((0.001, 0.02, 0.13)))
        return await self._faulty(request, fault) if fault else self._answer(request)

    async def _faulty(self, request: httpx.Request, fault: str) -> httpx.Response:
        rng = self.rng
        match fault:
            case "refused":
                raise httpx.ConnectError("refused")
            case "timeout_before" | "timeout_after":
                if fault == "timeout_after":
                    self._answer(request)
                await asyncio.sleep(60)
                raise httpx.ReadTimeout("no answer")
            case "reset_before":
                raise httpx.ReadError("reset")
            case "reset_after":
                self._answer(request)
                raise httpx.RemoteProtocolError("cut off")
            case "throttled_seconds":
                return self._refusal(429, "rate_limited", {"Retry-After": str(rng.choice((0, 1, 20)))})
            case "throttled_date":
                date = email.utils.formatdate(self.world.clock.time() + 5, usegmt=True)
                return self._refusal(429, "rate_limited", {"Retry-After": date})
            case "error_before":
                return self._refusal(rng.choice((500, 502, 503)), "internal_error")
            case "no_machine":
                return self._refusal(503, "no_ready_machine")
            case "error_after":
                self._answer(request)
                return self._refusal(500, "internal_error")
            case "garbage":
                self._answer(request)
                return httpx.Response(200, content=b"<html>oops</html>")
            case "cut":
                whole = self._answer(request).content
                return httpx.Response(200, content=whole[: len(whole) // 2])
            case "twice":
                self._answer(request)
                return self._answer(request)
            case "stale" if request.method == "GET" and not self.world.extended:
                # A daemon on this machine reads what it wrote; a service may lag behind by a minute.
                recent = [boxes for at, boxes in self.world.shadow if at > self.world.clock.time() - 60]
                return self._answer(request, rng.choice(recent) if recent else None)
        return self._answer(request)

    def _answer(self, request: httpx.Request, past: dict[str, Any] | None = None) -> httpx.Response:
        if self.dead:
            raise Killed
        world = self.world
        body = json.loads(request.content) if request.content else None
        query = dict(request.url.params)
        held = world.boxes
        try:
            if past is not None:
                world.boxes = past
            if self.wrong_account:
                world.boxes = {}
            answer = world.handle(request.method, request.url.path, query, dict(request.headers), body)
        except Refuse as no:
            return self._refusal(no.status, no.code)
        finally:
            if past is not None or self.wrong_account:
                world.boxes = held
        if self.wrong_account and request.url.path.endswith("/instance"):
            answer = {**answer, "id": "another-account"}
        if request.method != "GET" and not world.extended:
            now = {id: copy.copy(box) for id, box in world.boxes.items()}
            world.shadow = [*world.shadow[-3:], (world.clock.time(), now)]
        return httpx.Response(200, content=json.dumps(answer).encode() + b"\n")

    def _refusal(self, status: int, code: str, headers: dict[str, str] | None = None) -> httpx.Response:
        body = {"ok": False, "error": {"code": code, "message": f"{code} sec{CANARY[:3]}"}, "requestId": "req_1"}
        return httpx.Response(status, json=body, headers=headers)


class CloudProvider(WireProvider):
    """A service whose list carries neither owner nor ports, as the real one's."""

    async def _ask_instance(self) -> Instance:
        return await LocalProvider._ask_instance(self)  # type: ignore[arg-type]


def provider(net: Net, *, extended: bool) -> WireProvider:
    """A real provider over ``net``."""
    api = copy.copy(_TEMPLATE)
    api._client = httpx.AsyncClient(transport=net, trust_env=False)
    api.requests = 0
    if extended:
        return LocalProvider(api, registry.traits("local"))
    traits = Traits(
        provider="sandboxer",
        guest="systemd",
        package_store=False,
        lists_hosted=False,
        lists_idle=False,
        lists_owner=False,
        idle_settable=False,
        egress=frozenset({"all", "none"}),
    )
    return CloudProvider(api, traits, shortest=0.5, longest=3.0)


def virtual_time(clock: Clock, rng: random.Random) -> Any:
    """While it holds, the provider's own looks at the clock and its jitter are the world's."""
    time = SimpleNamespace(monotonic=clock.monotonic, time=clock.now)
    return (
        mock.patch.multiple(base_module, time=time),
        mock.patch.multiple(inside_module, time=time),
        (mock.patch.multiple(api_module, random=rng)),
    )
