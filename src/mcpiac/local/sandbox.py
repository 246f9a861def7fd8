"""One sandbox: its states, its process tree, what is known of its inside."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from mcpiac.local import freezer
from mcpiac.local.driver import SIZES, Driver, Launched, LaunchFailed, Mounted
from mcpiac.local.errors import Refused
from mcpiac.local.identity import Identity, boot_id
from mcpiac.local.lifecycle import Facts, Restarts
from mcpiac.local.link import AgentError, AgentGone, Link
from mcpiac.local.netns import Dialer
from mcpiac.local.records import Folder, Record, Runtime
from mcpiac.wire import ServiceItem

log = logging.getLogger(__name__)

Phase = Literal["starting", "up", "stopping", "down", "failed", "deleted"]
STOP_SECONDS = 8.0
"""How long services have to end on a stop (each gets SIGTERM, then SIGKILL after 5 s) before all is killed."""
_SERVICES_MAX = 64
_TOUCH_SECONDS = 1.0
_REWATCH_SECONDS = 1.0


def boot_clock() -> float:
    """Seconds since boot, suspends included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Surroundings:
    """What all sandboxes share. ``ended(pid)``: a process tree is gone; ``changed``: look at the clocks again."""

    driver: Driver
    dialer: Dialer
    ended: Callable[[int], None]
    changed: Callable[[], None]
    idle_minute: float = 60.0


class Sandbox:
    """One sandbox. All changes of its phase happen under ``lock``; pause and wake take one step of the event loop."""

    def __init__(self, folder: Folder, record: Record, around: Surroundings) -> None:
        self.folder = folder
        self.record = record
        self.lock = asyncio.Lock()
        self.phase: Phase = "down"
        self.paused_at: float | None = None
        self.services: dict[str, ServiceItem] = {}
        self.told = False
        """Whether the agent has said yet what services there are."""
        self.history: deque[dict[str, Any]] = deque(maxlen=200)
        self.hosting_error: str | None = None
        self.closed_ports: set[int] = set()
        self.unreadable = False
        self._around = around
        self._tree: Launched | None = None
        self._up_at = 0.0
        self._busy = 0
        self._detached = 0
        self._active = boot_clock()
        self._touched = 0.0
        self._exit_fd: int | None = None
        self._watch: asyncio.Task[None] | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._restarts = Restarts()
        self._tasks: set[asyncio.Task[None]] = set()

    # what is known

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def state(self) -> str:
        """As the API tells it."""
        if self.phase == "up":
            return "idle" if self.paused_at is not None else "running" if self.busy else "ready"
        return {"starting": "provisioning", "stopping": "archiving", "down": "archived", "failed": "error"}.get(
            self.phase, "cancelled"
        )

    @property
    def is_up(self) -> bool:
        """Its process tree runs, or is paused."""
        return self.phase == "up"

    @property
    def busy(self) -> bool:
        return self._busy > 0 or self._detached > 0

    @property
    def pid(self) -> int | None:
        """The first process of the running, not paused tree."""
        return self._tree.init.pid if self._tree and self.phase == "up" and self.paused_at is None else None

    def facts(self) -> Facts:
        minutes = self.record.idle_minutes
        return Facts(
            up=self.phase in ("up", "failed") and self.record.wanted == "running",
            paused=self.paused_at is not None or self.phase != "up",
            busy=self.busy,
            deadline=self.record.deadline,
            idle_seconds=minutes * self._around.idle_minute if minutes else None,
            active=self._active,
        )

    # activity

    def active(self) -> None:
        """Something happened: the idle clock begins anew."""
        self._active = boot_clock()
        if self._active - self._touched >= _TOUCH_SECONDS:
            self._touched = self._active
            try:
                self.folder.touch(time.time())
            except OSError as fault:
                log.warning("%s: cannot note its activity: %s", self.id, fault.strerror)

    def begin(self) -> None:
        """Something awaits an answer from it: it is not paused until ``end``."""
        self._busy += 1
        self.active()

    def end(self) -> None:
        self._busy -= 1
        self.active()

    @contextmanager
    def using(self) -> Iterator[Link]:
        """Work inside: wakes it, and keeps it awake. Raises Refused when it does not run."""
        self.require_up()
        self.begin()
        try:
            self.wake()
            assert self._tree is not None
            yield Link(self._around.dialer, self._tree.init.pid)
        finally:
            self.end()

    def require_up(self) -> None:
        if self.phase in ("starting", "stopping"):
            code = "sandbox_starting" if self.phase == "starting" else "sandbox_not_ready"
            raise Refused(409, code, f"the sandbox is {self.state}", details={"retryable": self.phase == "starting"})
        if self.phase != "up":
            why = self.record.error or ("its time is up" if self.record.expired else "it was stopped")
            raise Refused(409, "sandbox_not_ready", f"the sandbox is {self.state}: {why}; resume it first")

    # pause and wake: no await in them

    def pause(self) -> None:
        """Stop every process where it is. No-op when paused."""
        if self.paused_at is not None:
            return
        self.require_up()
        assert self._tree is not None
        if self.busy:
            raise Refused(
                409, "sandbox_busy", "something awaits an answer from this sandbox, or a command runs in it"
            )
        count = freezer.freeze(self._tree.init.pid)
        self.paused_at = time.time()
        self._save_runtime()
        log.info("%s: paused, %d processes", self.id, count)

    def wake(self) -> None:
        """Let every process go on. No-op when it is not paused."""
        if self.paused_at is None or self._tree is None:
            return
        freezer.thaw(self._tree.init.pid)
        self.paused_at = None
        self.record.memory_restored = True
        self.active()
        self._save_runtime()
        self._around.changed()
        log.info("%s: woken", self.id)

    # starting and stopping: under the lock

    async def start(self) -> None:
        """Make it run. Does not raise: a failure is its phase and its ``record.error``."""
        if self.phase == "up":
            return
        self._cancel_restart()
        self.phase = "starting"
        record = self.record
        began = time.monotonic()
        try:
            tree = await self._around.driver.launch(
                hostname=record.id.replace("_", "-"),
                disk=str(self.folder.disk),
                uid=record.uid,
                packages=[Mounted(each.host, each.item["path"]) for each in record.packages],
                env=self.folder.read_env(),
                limits=SIZES[record.type].limits(),
            )
        except (LaunchFailed, OSError, ValueError) as fault:
            self.phase = "failed"
            record.error = f"it cannot be started: {fault}"
            log.error("%s: %s", self.id, record.error)
            self._around.changed()
            return
        except BaseException:
            self.phase = "failed"
            raise
        record.error = None
        self.paused_at = None
        self._adopt(tree)
        self._save_runtime()
        self.active()
        log.info("%s: up in %.0f ms, pid %d", self.id, (time.monotonic() - began) * 1000, tree.init.pid)

    async def settled(self, seconds: float) -> None:
        """Wait until it has started (or not), at most so long."""
        deadline = time.monotonic() + seconds
        while self.phase == "starting" and time.monotonic() < deadline:
            await asyncio.sleep(0.002)

    def find(self) -> bool:
        """After a restart of the daemon: take up the process tree that it had, if it is still there."""
        runtime = self.folder.read_runtime()
        if runtime is None or runtime.boot != boot_id():
            return False
        tree = Launched(Identity(*runtime.monitor), Identity(*runtime.init), runtime.netns)
        try:
            same = tree.init.alive and os.stat(f"/proc/{tree.init.pid}/ns/net").st_ino == tree.netns
        except OSError:
            return False
        if not same:
            return False
        touched = self.folder.touched()
        if touched is not None:
            self._active = boot_clock() - max(0.0, time.time() - touched)
        if freezer.frozen(tree.init.pid):
            self.paused_at = runtime.paused_at or time.time()
        elif runtime.paused_at is not None:
            freezer.thaw(tree.init.pid)
        self._adopt(tree)
        return True

    async def stop(self) -> None:
        """End the process tree; the disk stays. A stopped sandbox stays as it is."""
        self._cancel_restart()
        if self._tree is None:
            self.phase = "down"
            return
        self.phase = "stopping"
        self.wake_for_stop()
        tree = self._tree
        try:
            await Link(self._around.dialer, tree.init.pid).ask({"op": "shutdown"}, timeout=STOP_SECONDS)
        except (AgentGone, AgentError) as fault:
            log.info("%s: its services did not end in time: %s", self.id, fault)
        await self._kill(tree)
        self.phase = "down"

    def wake_for_stop(self) -> None:
        if self.paused_at is not None and self._tree is not None:
            freezer.thaw(self._tree.init.pid)
            self.paused_at = None

    async def kill(self) -> None:
        """End the process tree at once."""
        self._cancel_restart()
        if self._tree is not None:
            self.phase = "stopping"
            await self._kill(self._tree)
        self.phase = "down"

    async def _kill(self, tree: Launched) -> None:
        """With the first process of a pid namespace all others die."""
        tree.init.kill(signal.SIGKILL)
        while tree.init.alive or tree.monitor.alive:
            await asyncio.sleep(0.002)
            reap(tree.monitor.pid)
        self._release()

    def _adopt(self, tree: Launched) -> None:
        self._tree = tree
        self.phase = "up"
        self._up_at = boot_clock()
        self.services, self.told = {}, False
        self._detached = 0
        try:
            self._exit_fd = tree.init.open()
        except ProcessLookupError:
            asyncio.get_running_loop().call_soon(self._ended)
            return
        asyncio.get_running_loop().add_reader(self._exit_fd, self._ended)
        self._watch = asyncio.create_task(self._watching(tree))
        self._around.changed()

    def _release(self) -> None:
        """The tree is gone: forget all that led to it."""
        tree, self._tree = self._tree, None
        if self._exit_fd is not None:
            asyncio.get_running_loop().remove_reader(self._exit_fd)
            os.close(self._exit_fd)
            self._exit_fd = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self.paused_at = None
        self.services = {}
        self._detached = 0
        self._save_runtime()
        if tree is not None:
            self._around.dialer.forget(tree.init.pid)
            self._around.ended(tree.init.pid)

    def _ended(self) -> None:
        """The first process is gone though nobody asked for it: start again, after a while."""
        tree = self._tree
        if tree is None or tree.init.alive or self.phase != "up":
            return
        reap(tree.monitor.pid)
        self._release()
        wait = self._restarts.next(boot_clock() - self._up_at)
        if wait is None:
            self.phase = "failed"
            self.record.error = "its process tree ended again and again right after its start"
            log.error("%s: given up: %s", self.id, self.record.error)
            self._around.changed()
            return
        log.warning("%s: its process tree ended; started again in %.1f s", self.id, wait)
        self.phase = "starting"
        self._restart = asyncio.get_running_loop().call_later(wait, self._start_again)

    def _start_again(self) -> None:
        self._restart = None

        async def again() -> None:
            async with self.lock:
                if self.phase == "starting" and self._tree is None:
                    await self.start()

        task = asyncio.create_task(again())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel_restart(self) -> None:
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None

    def fresh_start(self) -> None:
        """Somebody wants it up: earlier failures count no more."""
        self._restarts = Restarts()

    def leave(self) -> None:
        """The daemon ends; the sandbox goes on."""
        self._cancel_restart()
        for task in [*self._tasks, *([self._watch] if self._watch else [])]:
            task.cancel()

    # what the agent tells by itself

    async def _watching(self, tree: Launched) -> None:
        """Keep what the list shows of the inside; a broken conversation is begun again."""
        link = Link(self._around.dialer, tree.init.pid)
        while True:
            try:
                async with link.converse({"op": "watch"}) as conversation:
                    while (told := await conversation.next(None)) is not None:
                        self._told(told)
            except (AgentGone, AgentError) as fault:
                log.debug("%s: %s", self.id, fault)
            await asyncio.sleep(_REWATCH_SECONDS)

    def _told(self, told: Mapping[str, Any]) -> None:
        commands = told.get("commands")
        before = self._detached
        self._detached = min(commands, 10_000) if isinstance(commands, int) and commands > 0 else 0
        if before != self._detached:
            self.active()
        services = told.get("services")
        found: dict[str, ServiceItem] = {}
        for name, item in list(services.items())[:_SERVICES_MAX] if isinstance(services, dict) else ():
            try:
                found[str(name)[:64]] = _bounded(ServiceItem.model_validate(item))
            except ValidationError:
                log.debug("%s: its agent told nonsense of a service", self.id)
        self.services, self.told = found, True

    def _save_runtime(self) -> None:
        tree = self._tree
        runtime = None
        if tree is not None:
            monitor, init = (tree.monitor.pid, tree.monitor.started), (tree.init.pid, tree.init.started)
            runtime = Runtime(boot_id(), monitor, init, tree.netns, self.paused_at)
        try:
            self.folder.write_runtime(runtime)
        except FileNotFoundError:
            return  # it is being deleted


def _bounded(item: ServiceItem) -> ServiceItem:
    return item.model_copy(
        update={
            "state": item.state[:16],
            "last_exit": item.last_exit[:300] if item.last_exit else None,
            "since": item.since[:32] if item.since else None,
            "last_lines": tuple(line[:1000] for line in item.last_lines[-10:]),
        }
    )


def reap(pid: int) -> None:
    """Take the exit status of a child of ours, so that it is no zombie; no-op for others and the living."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
