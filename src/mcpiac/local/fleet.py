"""All sandboxes of one home: made, found again, stopped, deleted; their clocks and hosted ports."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mcpiac import wire
from mcpiac.local import hosting, lifecycle
from mcpiac.local.driver import Driver
from mcpiac.local.errors import Refused
from mcpiac.local.guests import Guests
from mcpiac.local.hosting import Hosting, HostingError
from mcpiac.local.netns import Dialer
from mcpiac.local.proxy import Proxy
from mcpiac.local.records import Folder, Record, RecordError, Records, StoredMount, new_id
from mcpiac.local.sandbox import Sandbox, Surroundings, boot_clock
from mcpiac.local.stage import UIDS_PER_DAEMON, Stage, first_uid

log = logging.getLogger(__name__)

_NEVER_LOOK_LATER_THAN = 3600.0
"""Seconds: the wall clock may be set."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Who this daemon is. ``key`` (hex) is known to nobody else: digests of requests are made with it."""

    id: str
    key: str


class Fleet:
    """Every sandbox of one daemon. Belongs to one event loop."""

    def __init__(self, home: Path, instance: Instance, stage: Stage, *, idle_minute: float = 60.0) -> None:
        self.instance = instance
        self.dialer = Dialer()
        self.driver = Driver(stage)
        self._boxes: dict[str, Sandbox] = {}
        self.proxy = Proxy(self.dialer, Guests(self._boxes))
        self._records = Records(home)
        self._by_key: dict[str, str] = {}
        self._deletions: dict[str, wire.DeletionItem] = {}
        self._first_uid = first_uid(instance.id) if stage.active else None
        self._changed = asyncio.Event()
        self._work = 0
        self._around = Surroundings(self.driver, self.dialer, self.proxy.drop, self.look, idle_minute)
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock: asyncio.Task[None] | None = None

    # opening and closing

    async def open(self) -> None:
        """Find the sandboxes that there are, and make each what it should be."""
        starting: list[Sandbox] = []
        for folder, record in self._records.all():
            if isinstance(record, RecordError):
                self._unreadable(folder, record)
                continue
            box = Sandbox(folder, record, self._around)
            found = box.find()
            if record.wanted == "deleted":
                self._in_background(self._remove(box))
                continue
            self._boxes[box.id] = box
            self._by_key[record.key] = box.id
            if found and record.wanted == "stopped":
                self._in_background(self._stop(box))
            elif not found and record.wanted == "running":
                if record.deadline is not None and record.deadline <= time.time():
                    self._expired(box)
                else:
                    box.phase = "starting"
                    starting.append(box)
            await self._open_ports(box)
        log.info("%d sandboxes, %d of them to start", len(self._boxes), len(starting))
        for box in starting:
            self._in_background(self._start(box))
        self._in_background(self._empty_trash())
        self._clock = asyncio.create_task(self._clocks())

    def _unreadable(self, folder: Folder, fault: RecordError) -> None:
        """A sandbox that exists and of which nothing is known: it is listed as an error, and can be deleted."""
        log.error("%s", fault)
        now = time.time()
        unknown = Record(folder.path.name, "", "", "small", now, now, wanted="stopped", error=str(fault))
        box = Sandbox(folder, unknown, self._around)
        box.find()
        box.phase = "failed"
        box.unreadable = True
        self._boxes[box.id] = box

    async def close(self) -> None:
        """Leave: the sandboxes go on without us."""
        if self._clock is not None:
            self._clock.cancel()
        for box in self._boxes.values():
            box.leave()
        self.proxy.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.dialer.close()

    @property
    def empty(self) -> bool:
        """No sandbox, stopped ones included, and no work left."""
        return not self._boxes and not self._tasks and not self._work

    @property
    def at_work(self) -> bool:
        """Inside a ``working``."""
        return self._work > 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """The daemon is needed meanwhile."""
        self._work += 1
        try:
            yield
        finally:
            self._work -= 1

    def look(self) -> None:
        """Something changed: look at the clocks again."""
        self._changed.set()

    def all(self) -> list[Sandbox]:
        """In the order of their creation."""
        return sorted(self._boxes.values(), key=lambda box: (box.record.created, box.id))

    def get(self, id: str) -> Sandbox:
        """To look at, or to delete."""
        box = self._boxes.get(id)
        if box is None:
            raise Refused(404, "sandbox_not_found", "there is no such sandbox")
        return box

    def use(self, id: str) -> Sandbox:
        """To change, or to work in."""
        box = self.get(id)
        if box.unreadable:
            raise Refused(409, "record_unreadable", f"{box.record.error}; repair that file, or delete the sandbox")
        return box

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.look()
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("a background task failed", exc_info=fault)

    # create and delete

    def create(
        self, key: str, size: str, ttl: int | None, env: Mapping[str, str], body: object
    ) -> tuple[Sandbox, bool]:
        """The sandbox of this idempotency key, and whether it is new. Its record is durable when this returns."""
        digest = hmac.new(bytes.fromhex(self.instance.key), _canonical(body), hashlib.sha256).hexdigest()
        known = self._boxes.get(self._by_key.get(key, ""))
        if known is not None:
            if known.record.digest != digest:
                message = f"this Idempotency-Key made {known.id} with other inputs"
                raise Refused(409, "idempotency_key_reused", message, details={"sandboxId": known.id})
            return known, False
        now = time.time()
        record = Record(
            id=new_id(),
            key=key,
            digest=digest,
            type=size,
            created=now,
            updated=now,
            owner=env.get(wire.OWNER_VARIABLE),
            deadline=None if ttl is None else now + ttl,
            uid=self._free_uid(),
        )
        folder = self._records.folder(record.id)
        folder.make(record, env)
        box = Sandbox(folder, record, self._around)
        box.phase = "starting"
        self._boxes[box.id] = box
        self._by_key[key] = box.id
        self._in_background(self._start(box))
        return box, True

    def _free_uid(self) -> int | None:
        if self._first_uid is None:
            return None
        taken = {box.record.uid for box in self._boxes.values()}
        for uid in range(self._first_uid + 1, self._first_uid + UIDS_PER_DAEMON):
            if uid not in taken:
                return uid
        raise Refused(503, "no_ready_machine", f"this daemon has {UIDS_PER_DAEMON - 1} sandboxes already")

    @property
    def build_uid(self) -> int | None:
        """The host uid under which code of packages is run, as root."""
        return self._first_uid

    def delete(self, box: Sandbox) -> wire.DeletionItem:
        """It leaves the list now and ends in the background."""
        box.record.wanted = "deleted"
        box.folder.write(box.record)
        del self._boxes[box.id]
        self._by_key.pop(box.record.key, None)
        for each in ports_of(box):
            self.proxy.hide(each.listen)
        operation = wire.DeletionItem(
            id=f"del_{secrets.token_hex(6)}", target_id=box.id, status="processing", requested_at=stamp(time.time())
        )
        self._deletions[operation.id] = operation
        self._in_background(self._remove(box, operation))
        return operation

    def deletion(self, id: str) -> wire.DeletionItem:
        found = self._deletions.get(id)
        if found is None:
            raise Refused(404, "deletion_not_found", "there is no such deletion")
        return found

    async def _remove(self, box: Sandbox, operation: wire.DeletionItem | None = None) -> None:
        async with box.lock:
            await box.kill()
            box.phase = "deleted"
            self._records.discard(box.folder)
        await self._empty_trash()
        if operation is not None:
            self._deletions[operation.id] = operation.model_copy(
                update={"status": "completed", "stage": "completed", "completed_at": stamp(time.time())}
            )
        log.info("%s: deleted", box.id)

    async def _empty_trash(self) -> None:
        try:
            await asyncio.to_thread(self._records.empty_trash)
        except OSError as fault:
            log.warning("what was deleted could not all be removed: %s", fault)

    # running and stopping

    async def _start(self, box: Sandbox) -> None:
        async with box.lock:
            if box.record.wanted == "running":
                await box.start()

    def resume(
        self, box: Sandbox, *, size: str | None, env: Mapping[str, str] | None, ttl: int | Unset | None
    ) -> bool:
        """Start again what is stopped; False: it runs already, and nothing was changed but the TTL."""
        record = box.record
        if not isinstance(ttl, Unset):
            record.deadline = None if ttl is None else time.time() + ttl
        stopped = box.phase not in ("up", "starting")
        if stopped:
            if env is not None:
                box.folder.write_env(env)
                record.owner = env.get(wire.OWNER_VARIABLE)
            if size is not None:
                record.type = size
            if isinstance(ttl, Unset) and record.deadline is not None and record.deadline <= time.time():
                record.deadline = None
            record.wanted, record.expired, record.error, record.memory_restored = "running", False, None, False
        record.updated = time.time()
        box.folder.write(record)
        if stopped:
            box.fresh_start()
            if box.phase != "stopping":
                box.phase = "starting"
            self._in_background(self._start(box))
        self.look()
        return stopped

    def stop(self, box: Sandbox, *, expired: bool = False) -> None:
        """Stop in the background; stopped already is success."""
        record = box.record
        record.wanted, record.expired, record.updated = "stopped", expired or record.expired, time.time()
        box.folder.write(record)
        if box.phase in ("down", "failed"):
            box.phase = "down"
            return
        box.phase = "stopping"
        self._in_background(self._stop(box))

    async def _stop(self, box: Sandbox) -> None:
        async with box.lock:
            if box.record.wanted == "stopped":
                await box.stop()
                log.info("%s: stopped", box.id)

    def _expired(self, box: Sandbox) -> None:
        log.info("%s: its time is up", box.id)
        self.stop(box, expired=True)

    async def mount(self, box: Sandbox, packages: Sequence[StoredMount]) -> bool:
        """Exactly these packages from now on; True when the process tree was started again for it."""
        async with box.lock:
            if box.record.wanted == "deleted":
                raise Refused(404, "sandbox_not_found", "the sandbox was deleted meanwhile")
            if [asdict(each) for each in packages] == [asdict(each) for each in box.record.packages]:
                return False
            box.record.packages, box.record.updated = list(packages), time.time()
            box.folder.write(box.record)
            if box.phase != "up":
                return False
            await box.stop()
            box.phase = "starting"
            box.fresh_start()
            await box.start()
            if not box.is_up:
                raise Refused(502, "sandbox_not_ready", box.record.error or "the sandbox did not start again")
            return True

    def mounted(self) -> set[str]:
        """The host folders of all packages in use."""
        return {each.host for box in self._boxes.values() for each in box.record.packages}

    # clocks

    async def _clocks(self) -> None:
        while True:
            self._changed.clear()
            wall, boot = time.time(), boot_clock()
            waits = [_NEVER_LOOK_LATER_THAN]
            for box in list(self._boxes.values()):
                again = self._tick(box, wall, boot)
                if again is not None:
                    waits.append(again)
            try:
                async with asyncio.timeout(min(waits)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _tick(self, box: Sandbox, wall: float, boot: float) -> float | None:
        verdict = lifecycle.decide(box.facts(), wall=wall, boot=boot)
        if verdict.due == "expire":
            self._expired(box)
        elif verdict.due == "pause":
            try:
                box.pause()
            except RuntimeError as fault:
                log.warning("%s: not paused: %s", box.id, fault)
                box.active()
        return verdict.again

    # hosted ports

    async def _open_ports(self, box: Sandbox) -> None:
        for each in ports_of(box):
            if not each.hidden:
                try:
                    await self.proxy.open(each.route(box.id))
                except HostingError as fault:
                    box.closed_ports.add(each.port)
                    box.hosting_error = f"port {each.port} is not hosted: {fault.message}"
                    log.error("%s: %s", box.id, box.hosting_error)

    async def host(self, box: Sandbox, port: int, *, public: bool, localhost: bool, title: str) -> Hosting:
        """Host a port: the same one has the same URL and token, also after it was hidden."""
        known = {each.port: each for each in ports_of(box)}
        taken = {each.listen for other in self._boxes.values() for each in ports_of(other)}
        try:
            made = hosting.host(
                known.get(port),
                port,
                public=public,
                localhost=localhost,
                title=title,
                taken=taken,
                seed=self.instance.id,
            )
            await self.proxy.open(made.route(box.id))
        except HostingError as fault:
            raise Refused(409, fault.code, fault.message) from None
        known[port] = made
        box.closed_ports.discard(port)
        box.hosting_error = None
        self._keep_ports(box, known)
        return made

    def hide(self, box: Sandbox, port: int) -> None:
        known = {each.port: each for each in ports_of(box)}
        found = known.get(port)
        if found is None or found.hidden:
            raise Refused(404, "port_not_hosted", f"port {port} is not hosted")
        self.proxy.hide(found.listen)
        known[port] = hosting.hide(found)
        self._keep_ports(box, known)

    def _keep_ports(self, box: Sandbox, known: Mapping[int, Hosting]) -> None:
        box.record.hosted = [each.to_json() for each in known.values()]
        box.record.updated = time.time()
        box.folder.write(box.record)


class Unset:
    """The type of ``UNSET``: not given, where None means something."""


UNSET = Unset()


def ports_of(box: Sandbox) -> list[Hosting]:
    """All ports that are or were hosted."""
    return [Hosting.from_json(each) for each in box.record.hosted]


def hosted_ports(box: Sandbox) -> list[Hosting]:
    """What is hosted now. One whose URL another program has is not: so a plan sees it."""
    return [each for each in ports_of(box) if not each.hidden and each.port not in box.closed_ports]


def stamp(at: float) -> str:
    """ISO 8601 UTC with milliseconds."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _canonical(body: object) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
