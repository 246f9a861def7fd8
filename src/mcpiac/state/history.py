"""The last snapshots, kept beside the state: ``history/<stack>.<serial>.<12 hex of SHA-256>.json``.

Each is a byte-for-byte copy of a snapshot that was current, the current one included, so that a damaged file can be
replaced without losing the last run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mcpiac.state.disk import Disk

KEEP = 20
_NAME = re.compile(r"(?P<stack>.+)\.(?P<serial>\d{8,})\.(?P<digest>[0-9a-f]{12})\.json")


@dataclass(frozen=True, slots=True)
class Kept:
    """One snapshot of the history; ``digest`` is the beginning of its SHA-256."""

    serial: int
    digest: str
    path: Path


def folder(state: Path) -> Path:
    """Where they lie."""
    return state / "history"


def kept(disk: Disk, state: Path, stack: str) -> list[Kept]:
    """A stack's history, newest first."""
    found = []
    for name in disk.names(folder(state)):
        match = _NAME.fullmatch(name)
        if match and match["stack"] == stack:
            found.append(Kept(int(match["serial"]), match["digest"], folder(state) / name))
    return sorted(found, key=lambda one: -one.serial)


def keep(disk: Disk, state: Path, stack: str, serial: int, digest: str, data: bytes) -> None:
    """Add a snapshot and drop what is older than the last ``KEEP``. Raises ``OSError``."""
    here = folder(state)
    disk.make_folder(here)
    disk.replace(here / f"{stack}.{serial:08d}.{digest[:12]}.json", data)
    for old in kept(disk, state, stack)[KEEP:]:
        disk.remove(old.path)
