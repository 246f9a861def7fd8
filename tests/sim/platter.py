"""A disk in memory that knows what is durable, and processes' views of it that fail, fill up or are killed."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.sim.virtual import Killed

from mcpiac.state.disk import Appender, Disk, Held

T = TypeVar("T")


class Node:
    """A file's bytes, and how they are on the platter."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = b""


class Platter:
    """What all processes share. Directory entries become durable when their folder is synced, in their order."""

    def __init__(self) -> None:
        self.names: dict[Path, Node] = {}
        self.folders: set[Path] = set()
        self.durable: dict[Path, Node] = {}
        self.pending: list[tuple[Path, Node | None]] = []
        self.locks: dict[Path, Any] = {}
        self.fsyncs = 0

    def link(self, path: Path, node: Node | None) -> None:
        if node is None:
            self.names.pop(path, None)
        else:
            self.names[path] = node
        self.pending.append((path, node))

    def sync_folder(self, folder: Path) -> None:
        self.fsyncs += 1
        rest = []
        for path, node in self.pending:
            if path.parent != folder:
                rest.append((path, node))
            else:
                self._settle(path, node)
        self.pending = rest

    def power_loss(self, rng: random.Random) -> None:
        """Back to what was durable, and by chance a part of what was not: a torn tail, the first few renames."""
        for path, node in self.pending[: rng.randint(0, len(self.pending))]:
            self._settle(path, node)
        self.pending = []
        self.names = dict(self.durable)
        self.locks = {}
        for node in set(self.names.values()):
            tail = bytes(node.data[len(node.durable) :]) if node.data.startswith(node.durable) else b""
            kept = tail[: rng.randint(0, len(tail))]
            if kept and rng.random() < 0.3:
                kept = b"\0" * len(kept)
            node.data = bytearray(node.durable + kept)
            node.durable = bytes(node.data)

    def _settle(self, path: Path, node: Node | None) -> None:
        if node is None:
            self.durable.pop(path, None)
        else:
            self.durable[path] = node


class SimDisk(Disk):
    """One process's view. ``fail(operation number)`` may raise before an operation, or answer that it is killed in
    the middle of it."""

    def __init__(
        self,
        platter: Platter,
        fail: Callable[[str], bool] = lambda _: False,
        died: Callable[[], None] = lambda: None,
    ) -> None:
        self.platter = platter
        self.died = died
        self.dead = False
        self.operations = 0
        self._fail = fail

    def _step(self, what: str) -> bool:
        if self.dead:
            raise Killed
        self.operations += 1
        return self._fail(what)

    def _die(self) -> None:
        self.dead = True
        self.died()
        raise Killed

    def read(self, path: Path) -> bytes:
        if self._step("read"):
            self._die()
        node = self.platter.names.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return bytes(node.data)

    def names(self, folder: Path) -> list[str]:
        if self.dead:
            raise Killed
        return sorted(path.name for path in self.platter.names if path.parent == folder)

    def make_folder(self, path: Path) -> None:
        if self._step("make_folder"):
            self._die()
        self.platter.folders.add(path)

    def create(self, path: Path, data: bytes) -> None:
        killed = self._step("create")
        if path in self.platter.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        node = Node(data[: len(data) // 2] if killed else data)
        self.platter.link(path, node)
        if killed:
            self._die()
        self.platter.fsyncs += 1
        node.durable = bytes(data)

    def rename(self, old: Path, new: Path) -> None:
        killed = self._step("rename")
        node = self.platter.names[old]
        # One journalled operation of the file system: the new name and the end of the old one together.
        self.platter.link(new, node)
        self.platter.link(old, None)
        if killed:
            self._die()

    def remove(self, path: Path) -> None:
        killed = self._step("remove")
        if path in self.platter.names:
            self.platter.link(path, None)
        if killed:
            self._die()

    def sync_folder(self, folder: Path) -> None:
        if self._step("sync_folder"):
            self._die()
        self.platter.sync_folder(folder)

    def appender(self, path: Path) -> Appender:
        if self._step("open"):
            self._die()
        return _Appender(self, self.platter.names[path])

    def flock(self, path: Path) -> Held:
        if self._step("flock"):
            self._die()
        if self.platter.locks.get(path) is not None:
            raise BlockingIOError(errno.EAGAIN, "locked", str(path))
        self.platter.locks[path] = self
        return _Held(self, path)

    async def aside(self, work: Callable[[], T]) -> T:
        return work()

    def end(self) -> None:
        """The process is gone: its locks are free."""
        self.dead = True
        self.platter.locks = {path: who for path, who in self.platter.locks.items() if who is not self}


class _Appender(Appender):
    def __init__(self, disk: SimDisk, node: Node) -> None:
        self._disk = disk
        self._node = node

    def append(self, data: bytes) -> None:
        try:
            killed = self._disk._step("append")
        except OSError:
            # A full disk takes the first part of a line.
            self._node.data += data[: len(data) // 3]
            raise
        if killed:
            self._node.data += data[: len(data) // 2]
            self._disk._die()
        self._node.data += data
        if self._disk._step("fsync"):
            self._disk._die()
        self._disk.platter.fsyncs += 1
        self._node.durable = bytes(self._node.data)

    def close(self) -> None: ...


class _Held(Held):
    def __init__(self, disk: SimDisk, path: Path) -> None:
        self._disk = disk
        self._where = path

    def same(self) -> bool:
        return self._disk.platter.locks.get(self._where) is self._disk

    def release(self) -> None:
        if not self._disk.dead:
            self._disk.platter.locks.pop(self._where, None)
