"""The store itself: ``ensure`` a package, once, whoever asks.

An install is made in a folder of its own under ``tmp/`` and gets its name by one rename when it is whole, checked and
read-only; a folder under its name is therefore always good, and an interrupted install leaves nothing but scraps
that the next one removes. Concurrent askers join the install under way; two daemons are held apart by a file lock.

    store/npm/<name>-<key>/{record.json, lock, tree/}     store/tmp/<key>-<random>/     store/locks/<key>
    store/cache/{npm,uv}                                  the package managers' own caches
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import sys
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcpiac.local.packages import npm, pypi
from mcpiac.local.packages.errors import PackageError
from mcpiac.local.packages.npm import Made
from mcpiac.local.packages.process import Cell, Installers, Progress, installers
from mcpiac.local.packages.tree import check_and_freeze, remove
from mcpiac.model.destination import Destination
from mcpiac.wire import PackageItem

FORMAT = 1
GUEST_ROOT = "/opt/mcpiac"
INSTALL_SECONDS = 600.0
AT_ONCE = 3
"""Installs under way at a time: each may take 200 MB and a core."""
HANDED_SECONDS = 120.0
"""What was handed out so recently is not collected: it may be about to be mounted."""
_LOCK_AGAIN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class StoredPackage:
    """A package in the store.

    ``mount``: (folder on this machine, folder in the guest), read-only. ``path`` is the latter. ``entry`` is the argv
    that starts it, with guest paths and the guest's ``node`` and ``python3``; ``env`` what that argv needs.
    ``integrity``: the registry's hash of the package itself. ``size`` in bytes.
    """

    package: PackageItem
    path: str
    entry: tuple[str, ...]
    env: Mapping[str, str]
    integrity: str
    mount: tuple[str, str]
    files: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class _Rights:
    """What code of a package may do while it is built."""

    scripts: bool
    hosts: tuple[Destination, ...]

    @classmethod
    def of(cls, package: PackageItem, scripts: bool, hosts: Sequence[Destination]) -> _Rights:
        """Only npm's scripts run, and only they reach anything."""
        reached = tuple(sorted(set(hosts))) if scripts and package.registry == "npm" else ()
        return cls(scripts, reached)


@dataclass(slots=True)
class _Job:
    task: asyncio.Task[StoredPackage]
    listeners: list[Progress] = field(default_factory=list)
    last: str = ""

    def tell(self, text: str) -> None:
        self.last = text
        for listener in self.listeners:
            listener(text)


class Store:
    """The packages under ``root`` (``$MCPIAC_HOME/store``)."""

    def __init__(self, root: Path, cell: Cell, programs: Installers | None = None) -> None:
        self._root = root
        self._cell = cell
        self._programs = programs or installers()
        self._jobs: dict[str, _Job] = {}
        self._handed: dict[Path, float] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def ensure(
        self,
        package: PackageItem,
        *,
        scripts: bool = False,
        hosts: Sequence[Destination] = (),
        settings: Mapping[str, str] | None = None,
        progress: Progress = lambda text: None,
        timeout: float = INSTALL_SECONDS,
    ) -> StoredPackage:
        """The package, installed if it is not. ``settings`` are the client's (``wire.install_settings``).

        ``scripts``: npm's install scripts run; they reach ``hosts`` and nothing else. Raises PackageError. A caller
        that is cancelled leaves the install to the others.
        """
        rights = _Rights.of(package, scripts, hosts)
        key = self._key(package, rights)
        found = self._find(package, key)
        if found is not None:
            return found
        job = self._jobs.get(key)
        if job is None:
            install = self._install(package, key, rights, dict(settings or {}), timeout)
            job = self._jobs[key] = _Job(asyncio.get_running_loop().create_task(install))
            job.task.add_done_callback(lambda task: self._done(key, task))
        job.listeners.append(progress)
        if job.last:
            progress(job.last)
        try:
            return await asyncio.shield(job.task)
        finally:
            job.listeners.remove(progress)

    def stored(self) -> list[Path]:
        """The folders of all installed packages."""
        return [
            path
            for registry in ("npm", "pypi")
            for path in sorted((self._root / registry).glob("*"))
            if path.is_dir()
        ]

    def collect(self, in_use: Collection[str]) -> list[str]:
        """Delete what no sandbox mounts (``in_use``: host folders of mounts) and scraps; returns what was deleted."""
        gone: list[str] = []
        recent = time.monotonic() - HANDED_SECONDS
        for path in self.stored():
            if str(path / "tree") not in in_use and self._handed.get(path, recent) <= recent:
                self._handed.pop(path, None)
                remove(path)
                gone.append(path.name)
        for scraps in (self._root / "tmp").glob("*"):
            key = scraps.name.partition("-")[0]
            if key not in self._jobs:
                with contextlib.suppress(BlockingIOError), _locked(self._lock_path(key)):
                    remove(scraps)
        return gone

    async def close(self) -> None:
        """End the installs under way; their scraps are removed."""
        tasks = [job.task for job in self._jobs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, key: str, task: asyncio.Task[StoredPackage]) -> None:
        self._jobs.pop(key, None)
        if not task.cancelled():
            task.exception()  # each waiter gets it; without one it is no news

    def _key(self, package: PackageItem, rights: _Rights) -> str:
        """Of all that decides what the tree holds. A script may do without a host that it does not reach, and leave
        another tree: so its hosts count too."""
        scripts = rights.scripts
        machine = os.uname().machine
        if package.registry == "npm":
            runtime = f"node:{machine}:{self._node_version() if scripts else ''}"
        else:
            runtime = f"python:{machine}:{sys.implementation.cache_tag}"
        parts = [FORMAT, package.registry, package.name, package.version, sorted(package.extras), scripts, runtime]
        parts += [[str(each) for each in rights.hosts]] if rights.hosts else []
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]

    def _node_version(self) -> str:
        """Compiled add-ons fit one node: its header tells which."""
        header = Path(self._programs.node_prefix or "/", "include/node/node_version.h")
        with contextlib.suppress(OSError):
            found = re.search(r"#define NODE_MODULE_VERSION (\d+)", header.read_text())
            if found:
                return found[1]
        return "unknown"

    def _folder(self, package: PackageItem, key: str) -> Path:
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{package.name}-{package.version}").strip("-.")[:80]
        return self._root / package.registry / f"{words}-{key}"

    def _guest(self, package: PackageItem) -> str:
        extras = "".join(f"+{each}" for each in sorted(package.extras))
        return f"{GUEST_ROOT}/{package.registry}/{package.name}@{package.version}{extras}"

    def _lock_path(self, key: str) -> Path:
        return self._root / "locks" / key

    def _find(self, package: PackageItem, key: str) -> StoredPackage | None:
        folder = self._folder(package, key)
        try:
            record: dict[str, Any] = json.loads((folder / "record.json").read_text())
        except FileNotFoundError:
            return None
        self._handed[folder] = time.monotonic()
        guest = self._guest(package)
        return StoredPackage(
            package=package,
            path=guest,
            entry=tuple(record["entry"]),
            env=record["env"],
            integrity=record["integrity"],
            mount=(str(folder / "tree"), guest),
            files=record["files"],
            size=record["size"],
        )

    async def _install(
        self, package: PackageItem, key: str, rights: _Rights, settings: Mapping[str, str], timeout: float
    ) -> StoredPackage:
        if package.registry not in ("npm", "pypi"):
            raise PackageError("package_not_found", f"there is no registry {package.registry}")
        try:
            for name in ("npm", "pypi", "tmp", "locks", "cache/npm", "cache/uv"):
                (self._root / name).mkdir(parents=True, exist_ok=True)
            async with self._slots, self._alone(key):
                found = self._find(package, key)  # another daemon may have made it meanwhile
                if found is not None:
                    return found
                for scraps in (self._root / "tmp").glob(f"{key}-*"):
                    await asyncio.to_thread(remove, scraps)
                return await self._make(package, key, rights, settings, timeout)
        except OSError as failure:
            if failure.errno in (errno.ENOSPC, errno.EDQUOT):
                raise PackageError("disk_full", f"no space left in {self._root}") from failure
            raise PackageError("install_failed", f"{self._root}: {failure.strerror or failure}") from failure

    async def _make(
        self, package: PackageItem, key: str, rights: _Rights, settings: Mapping[str, str], timeout: float
    ) -> StoredPackage:
        began = time.monotonic()
        staging = self._root / "tmp" / f"{key}-{secrets.token_hex(4)}"
        tree, scratch = staging / "tree", staging / "scratch"
        try:
            tree.mkdir(parents=True)
            scratch.mkdir()
            made = await self._fill(package, key, tree, scratch, rights, settings, timeout)
            files, size = await asyncio.to_thread(check_and_freeze, tree)
            await asyncio.to_thread(remove, scratch)
            (staging / "lock").write_text(made.lock)
            record = {
                "format": FORMAT,
                "package": package.body(),
                "entry": list(made.entry),
                "env": dict(made.env),
                "integrity": made.integrity,
                "files": files,
                "size": size,
            }
            with open(staging / "record.json", "w", encoding="utf-8") as file:
                json.dump(record, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.rename(staging, self._folder(package, key))
        except BaseException:
            remove(staging)
            raise
        found = self._find(package, key)
        assert found is not None
        self._tell(
            key,
            f"installed {package.name} {package.version}: {size / 1e6:.0f} MB in {time.monotonic() - began:.1f} s",
        )
        return found

    async def _fill(
        self,
        package: PackageItem,
        key: str,
        tree: Path,
        scratch: Path,
        rights: _Rights,
        settings: Mapping[str, str],
        timeout: float,
    ) -> Made:
        def progress(text: str) -> None:
            self._tell(key, text)

        guest = self._guest(package)
        if package.registry == "npm":
            return await npm.install(
                package,
                tree,
                guest,
                cell=self._cell,
                programs=self._programs,
                settings=settings,
                cache=self._root / "cache/npm",
                scratch=scratch,
                scripts=rights.scripts,
                hosts=rights.hosts,
                timeout=timeout,
                progress=progress,
            )
        return await pypi.install(
            package,
            tree,
            guest,
            cell=self._cell,
            programs=self._programs,
            settings=settings,
            cache=self._root / "cache/uv",
            scratch=scratch,
            timeout=timeout,
            progress=progress,
        )

    def _tell(self, key: str, text: str) -> None:
        job = self._jobs.get(key)
        if job is not None:
            job.tell(text)

    @contextlib.asynccontextmanager
    async def _alone(self, key: str) -> AsyncIterator[None]:
        """Hold the file lock of a key, without ever blocking the loop."""
        while True:
            try:
                holder = _locked(self._lock_path(key))
                holder.__enter__()
                break
            except BlockingIOError:
                self._tell(key, "another mcpiac daemon installs it now")
                await asyncio.sleep(_LOCK_AGAIN_SECONDS)
        try:
            yield
        finally:
            holder.__exit__(None, None, None)


class _locked:
    """An flock on a file, released (and the file kept) at the end. Raises BlockingIOError when it is held."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._fd)
            raise

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
