"""The Provider port over the wire: what every provider of the sandbox API does alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from mcpiac import wire
from mcpiac.model.live import STOPPED, Found, Gone, Live, LiveView, Unreadable
from mcpiac.model.outcome import ProviderError
from mcpiac.model.record import Instance
from mcpiac.model.secret import Secret
from mcpiac.model.spec import Egress
from mcpiac.model.traits import Traits
from mcpiac.providers.api import Api, segment
from mcpiac.providers.classify import Operation
from mcpiac.providers.hosting import Hosting, hosted_port
from mcpiac.providers.inside import Inside

TTL_SLACK = 30.0
"""Seconds by which a deadline may differ from now + TTL and still be the one that was set."""

_page = TypeAdapter(wire.SandboxPage)
_one = TypeAdapter(wire.SandboxAnswer)
_created = TypeAdapter(wire.CreateAnswer)
_acted = TypeAdapter(wire.ActionAnswer)
_deletion = TypeAdapter(wire.DeletionAnswer)
_limits = TypeAdapter(wire.LimitsAnswer)


class WireProvider(Inside, Hosting):
    """One provider of the sandbox API."""

    def __init__(self, api: Api, traits: Traits, *, shortest: float, longest: float) -> None:
        super().__init__(api, traits, shortest=shortest, longest=longest)
        self._instance: Instance | None = None
        self._instance_lock = asyncio.Lock()

    # -- what exists ------------------------------------------------------------------------------------------------

    async def instance(self) -> Instance:
        """Which service this is; asked once."""
        async with self._instance_lock:
            if self._instance is None:
                self._instance = await self._ask_instance()
            return self._instance

    async def _ask_instance(self) -> Instance:
        raise NotImplementedError

    async def refresh(self, recorded: Sequence[str]) -> LiveView:
        """All pages of the list, then a get for each recorded id that the list lacked.

        *Gone* needs a complete list and a 404; anything less is *unreadable*.
        """
        began, before = time.monotonic(), self._api.requests
        instance, (listed, complete) = await asyncio.gather(self.instance(), self._list())
        live: dict[str, Live] = dict(listed)
        missing = [id for id in dict.fromkeys(recorded) if id not in live]
        for id, found in zip(missing, await asyncio.gather(*(self._look(i, complete) for i in missing)), strict=True):
            live[id] = found
        return LiveView(instance, live, seconds=time.monotonic() - began, requests=self._api.requests - before)

    async def _list(self) -> tuple[dict[str, Live], bool]:
        """The listed sandboxes, and whether the list is whole: pages that contradict each other are not."""
        live: dict[str, Live] = {}
        seen: set[str] = set()
        cursor: str | None = None
        complete = True
        while True:
            params: dict[str, str | int] = {"limit": wire.LIST_MAX}
            if cursor is not None:
                params["cursor"] = cursor
            page = await self._api.call(
                _page, "GET", "/sandboxes", operation="get", what="list the sandboxes", params=params
            )
            for item in page.sandboxes:
                complete = complete and item.id not in live
                live[item.id] = Gone(item.id) if item.state == "cancelled" else self._found(item)
            info = page.page_info
            if not info.has_more:
                return live, complete
            if info.next_cursor is None or info.next_cursor in seen or not page.sandboxes:
                return live, False
            cursor = info.next_cursor
            seen.add(cursor)

    async def _look(self, id: str, complete: bool) -> Live:
        try:
            return await self.get(id)
        except ProviderError as fault:
            if fault.kind == "not_found" and complete:
                return Gone(id)
            if fault.kind == "not_found":
                return Unreadable(id, "the list of sandboxes was cut or changed while it was read; plan again")
            return Unreadable(id, str(fault))

    async def get(self, id: str) -> Found:
        """One sandbox; ``not_found`` when it does not exist (any more)."""
        answer = await self._sandbox("GET", id, "get", f"read sandbox {id}")
        if answer.state == "cancelled":
            raise ProviderError("not_found", f"sandbox {id} was cancelled: {answer.error or 'no machine'}")
        return self._found(answer)

    async def _sandbox(
        self, method: str, id: str, operation: Operation, what: str, body: Mapping[str, Any] | None = None
    ) -> wire.Sandbox:
        answer = await self._api.call(
            _one, method, f"/sandboxes/{segment(id)}", operation=operation, what=what, json=body
        )
        return answer.sandbox

    def _found(self, item: wire.Sandbox) -> Found:
        state = "paused" if item.paused_at is not None and item.state in wire.USABLE_STATES else item.state
        return Found(
            id=item.id,
            name=item.name or "",
            state=state,
            created_at=item.created_at or "",
            owner=item.owner,
            size=item.type,
            expires_at=item.archive_after,
            expired=bool(item.expired),
            idle=item.idle_minutes,
            idle_in=item.idle_in_seconds,
            paused_at=item.paused_at,
            hosted=None if item.hosted is None else {h.port: hosted_port(h)[0] for h in item.hosted},
            error=item.error,
            memory_restored=item.memory_restored,
            services={} if item.services is None else {n: s.model_dump() for n, s in item.services.items()},
        )

    # -- life -------------------------------------------------------------------------------------------------------

    async def create(
        self, *, key: str, size: str, ttl: int | None, env: Mapping[str, Secret], egress: Egress
    ) -> Found:
        """Make a sandbox, or find the one that this key made. ``in_doubt``: ask again with the same key."""
        body = wire.CreateRequest(
            type=size,
            ttl_seconds=ttl,
            env=_revealed(env),
            no_env=True,
            **self._create_extras(egress),
        ).body()
        answer = await self._api.call(
            _created,
            "POST",
            "/sandboxes",
            operation="create",
            what="create a sandbox",
            json=body,
            headers={wire.HEADER_IDEMPOTENCY: key},
            secrets=_values(env),
        )
        return self._found(answer.sandbox)

    def _create_extras(self, egress: Egress) -> dict[str, Any]:
        return {}

    async def wait(self, id: str, *, timeout: float) -> Found:
        """Until it is usable; ``rejected`` when it ended in ``error`` or ``cancelled``; ``transient`` after
        ``timeout`` seconds."""

        def usable(found: Found) -> bool:
            if found.state in ("error", "cancelled"):
                raise ProviderError("rejected", f"sandbox {id} did not start: {found.error or found.state}")
            if found.state in STOPPED:
                raise ProviderError("conflict", f"sandbox {id} was stopped while it was awaited")
            return found.state in wire.USABLE_STATES or found.state == "paused"

        return await self._until(id, usable, timeout, "usable")

    async def _until(self, id: str, reached: Callable[[Found], bool], timeout: float, state: str) -> Found:
        deadline, pause = time.monotonic() + timeout, self._shortest
        while True:
            found = await self.get(id)
            if reached(found):
                return found
            if time.monotonic() + pause > deadline:
                raise ProviderError(
                    "transient",
                    f"sandbox {id} is not {state} after {timeout:g} s: it is {found.state}",
                    hint="apply again to go on, or raise `timeouts: {create: SECONDS}`",
                )
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, self._longest)

    async def _patch(self, id: str, what: str, body: dict[str, Any], is_so: Callable[[Found], bool]) -> None:
        async def act() -> Found:
            return self._found(await self._sandbox("PATCH", id, "write", f"{what} of sandbox {id}", body))

        async def look() -> Found | None:
            found = await self.get(id)
            return found if is_so(found) else None

        await self._settled(act, look)

    async def rename(self, id: str, name: str) -> None:
        await self._patch(id, "set the name", {"name": name}, lambda f: f.name == name)

    async def set_ttl(self, id: str, ttl: int | None) -> None:
        """Auto-stop ``ttl`` seconds from now; None switches it off."""
        began = time.time()
        await self._patch(
            id, "set the TTL", {"ttlSeconds": ttl}, lambda found: _deadline_is(found.expires_at, began, ttl)
        )

    async def set_idle(self, id: str, idle: int | None) -> None:
        """Auto-pause after ``idle`` minutes without activity; None switches it off."""
        raise NotImplementedError

    async def set_egress(self, id: str, egress: Egress) -> None:
        """What it may reach."""
        if egress.kind not in self._traits.egress:
            raise ProviderError("rejected", f"the provider {self._traits.provider} cannot enforce `egress`")

    async def stop(self, id: str, *, timeout: float) -> None:
        """Stop and wait until it is stopped; the disk is kept. Stopped already is success."""

        async def act() -> bool:
            try:
                await self._api.call(
                    _acted, "POST", f"/sandboxes/{segment(id)}/stop", operation="write", what=f"stop sandbox {id}"
                )
            except ProviderError as fault:
                if fault.kind != "conflict" or (await self.get(id)).state not in STOPPED:
                    raise
            return True

        async def look() -> bool | None:
            return True if (await self.get(id)).state in STOPPED else None

        await self._settled(act, look)
        await self._until(id, lambda found: found.state == "archived", timeout, "stopped")

    async def resume(
        self, id: str, *, env: Mapping[str, Secret] | None, size: str | None, ttl: int | None, timeout: float
    ) -> Found:
        """Start again and wait until usable. ``env`` None keeps the environment that it has; ``ttl`` None: no
        auto-stop."""
        given: dict[str, Any] = {"ttl_seconds": ttl, "no_env": True}
        if env is not None:
            given["env"] = _revealed(env)
        if size is not None:
            given["type"] = size
        body = wire.ResumeRequest(**given).body()

        async def act() -> bool:
            await self._api.call(
                _acted,
                "POST",
                f"/sandboxes/{segment(id)}/resume",
                operation="write",
                what=f"resume sandbox {id}",
                json=body,
                secrets=_values(env or {}),
            )
            return True

        async def look() -> bool | None:
            return True if (await self.get(id)).state not in STOPPED else None

        await self._settled(act, look)
        return await self.wait(id, timeout=timeout)

    async def delete(self, id: str) -> None:
        """Delete and wait until it is in no list any more; gone already is success. The service may erase the stored
        data later."""

        async def act() -> wire.DeletionItem | None:
            try:
                answer = await self._api.call(
                    _deletion,
                    "DELETE",
                    f"/sandboxes/{segment(id)}",
                    operation="write",
                    what=f"delete sandbox {id}",
                    headers={wire.HEADER_CONFIRM_DELETE: id},
                )
            except ProviderError as fault:
                if fault.kind == "not_found":
                    return None
                raise
            return answer.operation

        async def look() -> wire.DeletionItem | None:
            return None

        operation = await self._settled(act, look)
        pause = self._shortest
        while operation is not None and operation.status != "completed":
            if operation.status == "blocked":
                raise ProviderError("conflict", f"the deletion of sandbox {id} is blocked: {operation.stage or ''}")
            try:
                await self.get(id)
            except ProviderError as fault:
                if fault.kind == "not_found":
                    return
                raise
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, self._longest)
            answer = await self._api.call(
                _deletion,
                "GET",
                f"/deletion-operations/{segment(operation.id)}",
                operation="get",
                what=f"read the deletion of sandbox {id}",
            )
            operation = answer.operation

    async def limits(self) -> Mapping[str, Any]:
        """What the account or machine may start, as ``wire.LimitsAnswer`` holds it."""
        answer = await self._api.call(_limits, "GET", "/limits", operation="get", what="read the limits")
        return answer.model_dump(exclude={"ok", "type"})


def _revealed(env: Mapping[str, Secret]) -> dict[str, str]:
    return {name: secret.reveal() for name, secret in env.items()}


def _values(env: Mapping[str, Secret]) -> tuple[str, ...]:
    return tuple(secret.reveal() for name, secret in env.items() if name != wire.OWNER_VARIABLE)


def _deadline_is(expires_at: str | None, began: float, ttl: int | None) -> bool:
    if expires_at is None or ttl is None:
        return expires_at is None and ttl is None
    try:
        at = datetime.fromisoformat(expires_at)
    except ValueError:
        return False
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return abs(at.timestamp() - began - ttl) <= TTL_SLACK
