"""What is kept of each sandbox on disk: one folder, small JSON files replaced in one step.

``$MCPIAC_HOME/sandboxes/<id>/``: ``record.json`` (durable), ``env.json`` (its secrets), ``runtime.json`` (its running
processes; void after a reboot), ``activity`` (its time is that of the last activity), ``disk/`` (the guest's
/home/user). Files are 0600 in folders of 0700.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

FORMAT = 1


@dataclass(slots=True)
class StoredMount:
    """A package as mounted: the wire's ``InstalledItem`` as data, and its folder on the host."""

    item: dict[str, Any]
    host: str


@dataclass(slots=True)
class Record:
    """One sandbox. Times are seconds since the epoch; ``deadline`` None: no auto-stop; ``idle_minutes`` 0: off.

    ``wanted`` is what it should be: the daemon makes it so whenever it starts. ``hosted`` holds tokens.
    """

    id: str
    key: str
    digest: str
    type: str
    created: float
    updated: float
    owner: str | None = None
    name: str | None = None
    deadline: float | None = None
    idle_minutes: int = 15
    wanted: Literal["running", "stopped", "deleted"] = "running"
    expired: bool = False
    error: str | None = None
    uid: int | None = None
    memory_restored: bool = False
    packages: list[StoredMount] = field(default_factory=list)
    hosted: list[dict[str, Any]] = field(default_factory=list)
    format: int = FORMAT


@dataclass(slots=True)
class Runtime:
    """The process tree of a running sandbox: pids with start times (clock ticks since boot), of this boot."""

    boot: str
    monitor: tuple[int, int]
    init: tuple[int, int]
    netns: int
    paused_at: float | None = None


class RecordError(ValueError):
    """A record that cannot be read."""


def new_id() -> str:
    return "sbx_" + secrets.token_hex(6)


class Folder:
    """The files of one sandbox."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = path / "disk"

    def make(self, record: Record, env: Mapping[str, str]) -> None:
        """A new sandbox, durable when this returns; a record is the last thing written, so half of one is none."""
        os.makedirs(self.disk, mode=0o700)
        os.chmod(self.path, 0o700)
        if record.uid is not None:
            os.chown(self.disk, record.uid, record.uid)
        self.write_env(env)
        self.write(record)
        _sync_folder(self.path.parent)

    def write(self, record: Record) -> None:
        """Durable when this returns."""
        _replace(self.path / "record.json", asdict(record), durable=True)

    def read(self) -> Record:
        """Raises RecordError, FileNotFoundError."""
        data = _load(self.path / "record.json")
        if data.get("format") != FORMAT:
            raise RecordError(
                f"{self.path}/record.json is of format {data.get('format')}, this daemon knows {FORMAT}"
            )
        known = {each.name for each in fields(Record)}
        try:
            record = Record(**{name: value for name, value in data.items() if name in known})
            record.packages = [StoredMount(**each) for each in data.get("packages", [])]
        except TypeError as fault:
            raise RecordError(f"{self.path}/record.json: {fault}") from None
        return record

    def write_env(self, env: Mapping[str, str]) -> None:
        _replace(self.path / "env.json", dict(env), durable=True)

    def read_env(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in _load(self.path / "env.json").items()}

    def write_runtime(self, runtime: Runtime | None) -> None:
        if runtime is None:
            (self.path / "runtime.json").unlink(missing_ok=True)
        else:
            _replace(self.path / "runtime.json", asdict(runtime), durable=False)

    def read_runtime(self) -> Runtime | None:
        try:
            data = _load(self.path / "runtime.json")
            return Runtime(
                str(data["boot"]),
                (int(data["monitor"][0]), int(data["monitor"][1])),
                (int(data["init"][0]), int(data["init"][1])),
                int(data["netns"]),
                data.get("paused_at"),
            )
        except (FileNotFoundError, RecordError, KeyError, TypeError, ValueError, IndexError):
            return None

    def touch(self, at: float) -> None:
        """Note the time of the last activity."""
        path = self.path / "activity"
        try:
            os.utime(path, (at, at))
        except FileNotFoundError:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            os.utime(path, (at, at))

    def touched(self) -> float | None:
        try:
            return (self.path / "activity").stat().st_mtime
        except FileNotFoundError:
            return None


class Records:
    """All folders of one home. ``trash`` holds what is being removed, out of everyone's sight."""

    def __init__(self, home: Path) -> None:
        self.root = home / "sandboxes"
        self.trash = home / "trash"
        for path in (self.root, self.trash):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def folder(self, id: str) -> Folder:
        return Folder(self.root / id)

    def all(self) -> Iterator[tuple[Folder, Record | RecordError]]:
        """Every sandbox there is; a folder without a record was never finished, and goes to the trash."""
        for path in sorted(self.root.iterdir()):
            folder = Folder(path)
            try:
                yield folder, folder.read()
            except FileNotFoundError:
                self.discard(folder)
            except RecordError as fault:
                yield folder, fault

    def discard(self, folder: Folder) -> None:
        """Move a folder to the trash: from now on the sandbox does not exist."""
        os.rename(folder.path, self.trash / f"{folder.path.name}-{secrets.token_hex(4)}")
        _sync_folder(self.root)

    def empty_trash(self) -> None:
        """Remove what is in the trash; may take long. A guest may have left folders without permissions."""
        for path in list(self.trash.iterdir()):
            shutil.rmtree(path, onerror=_open_up)


def _open_up(action: Any, path: str, _why: Any) -> None:
    """rmtree's helper: its caller holds no permission on a folder that it owns."""
    parent = os.path.dirname(path)
    try:
        os.chmod(parent, 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        return


def _load(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except ValueError as fault:
        raise RecordError(f"{path}: {fault}") from None
    if not isinstance(data, dict):
        raise RecordError(f"{path} is no JSON object")
    return data


def _replace(path: Path, data: object, *, durable: bool) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(data, file, separators=(",", ":"))
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(fresh, path)
    if durable:
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
