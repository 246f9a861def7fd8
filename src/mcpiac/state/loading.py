"""Reading a stack's state: the snapshot, the journal over it, and everything that can be wrong with either.

A file that cannot be read is an error that says what and names the newest good copy; it is never an empty state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from mcpiac.model.diagnostic import Diagnosed, Diagnostic, Origin
from mcpiac.model.record import FORMAT_VERSION, State
from mcpiac.state import faults, history, integrity
from mcpiac.state.codec import Unfit, state_of
from mcpiac.state.disk import Disk
from mcpiac.state.journal import JOURNAL_VERSION, BadLine, NewerJournal, Parsed, parse
from mcpiac.state.ledger import Misfit, replay

_MARKS = (b"<<<<<<<", b"=======", b">>>>>>>")
_READ_AGAIN = 50

Spare = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A stack's state as its files tell it.

    ``state`` is the snapshot with the journal replayed. ``snapshot`` is the SHA-256 of the snapshot's bytes, '' for
    none; ``serial`` its serial. ``journal`` says whether there is a journal file, ``pending`` whether it holds
    records that the snapshot lacks.
    """

    state: State
    snapshot: str
    serial: int
    journal: bool
    pending: bool
    notes: tuple[Diagnostic, ...] = ()


def snapshot_path(folder: Path, stack: str) -> Path:
    """The snapshot's file."""
    return folder / f"{stack}.json"


def journal_path(folder: Path, stack: str) -> Path:
    """The journal's file."""
    return folder / f"{stack}.journal"


def load(disk: Disk, folder: Path, stack: str) -> Loaded | None:
    """The state, or None where nothing was ever recorded. Raises ``Diagnosed``.

    Needs no lock: the snapshot is read before and after the journal until both readings agree.
    """
    path, beside = snapshot_path(folder, stack), journal_path(folder, stack)

    def spare() -> str:
        return _spare(disk, folder, stack)

    for _ in range(_READ_AGAIN):
        before = _bytes(disk, path, spare)
        lines = _bytes(disk, beside, spare)
        if _bytes(disk, path, spare) == before:
            break
    if before is None and lines is None:
        _nothing_lost(disk, folder, stack, path, spare)
        return None
    base = _snapshot(path, stack, before, spare) if before is not None else None
    digest = hashlib.sha256(before).hexdigest() if before is not None else ""
    if base is not None:
        _latest(disk, folder, base, digest, path)
    else:
        _nothing_lost(disk, folder, stack, path, spare)
    parsed = _journal(beside, lines, spare) if lines is not None else None
    state, pending, notes = _joined(beside, stack, base, digest, parsed)
    wrong = integrity.broken(state)
    if wrong:
        raise faults.invalid(path, wrong)
    return Loaded(state, digest, base.serial if base else 0, lines is not None, pending, notes)


def parse_snapshot(path: Path, stack: str, data: bytes) -> State:
    """A snapshot's bytes as a checked state; raises ``Diagnosed``. ``path`` is for messages."""
    state = _snapshot(path, stack, data, str)
    wrong = integrity.broken(state)
    if wrong:
        raise faults.invalid(path, wrong)
    return state


def _bytes(disk: Disk, path: Path, spare: Spare) -> bytes | None:
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise faults.unreadable(path, fault, spare()) from None


def _json(data: bytes) -> Any:
    """Read by pydantic-core, twice as quick; what it refuses is json's to judge, whose errors have a place."""
    try:
        return from_json(data)
    except ValueError:
        return json.loads(data)


def _snapshot(path: Path, stack: str, data: bytes, spare: Spare) -> State:
    try:
        value = _json(data)
    except ValueError as fault:
        raise _not_json(path, data, fault, spare()) from None
    if not isinstance(value, dict):
        raise faults.damaged(path, "not a state", spare())
    version = value.get("version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise faults.newer(path, version, FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise faults.damaged(path, "not a state of a known version", spare())
    try:
        state = state_of(value)
    except Unfit as fault:
        raise faults.damaged(path, str(fault), spare()) from None
    if state.stack != stack:
        raise faults.damaged(path, f"it is the state of stack {state.stack}, not of {stack}", spare())
    return state


def _not_json(path: Path, data: bytes, fault: ValueError, spare: str) -> Diagnosed:
    if not data.strip(b"\0 \r\n\t"):
        return faults.damaged(path, "the file is empty", spare, code="state-empty")
    for number, line in enumerate(data.splitlines(), 1):
        if line.startswith(_MARKS):
            why = "the file holds the marks of a merge that was not finished"
            return faults.damaged(path, why, spare, number, code="state-merge-conflict")
    if isinstance(fault, json.JSONDecodeError):
        return faults.damaged(path, f"not JSON: {fault.msg}", spare, fault.lineno)
    return faults.damaged(path, "not UTF-8 text", spare)


def _latest(disk: Disk, folder: Path, state: State, digest: str, path: Path) -> None:
    for one in history.kept(disk, folder, state.stack):
        if one.serial > state.serial:
            raise faults.forked(
                path,
                f"serial {state.serial} is older than serial {one.serial} in the history",
                f"to go back on purpose: mcpiac state rollback {state.stack} {state.serial}; "
                f"to go on from the newest: mcpiac state rollback {state.stack} {one.serial}",
            )
        if one.serial == state.serial and not digest.startswith(one.digest):
            raise faults.forked(
                path,
                f"serial {state.serial} is in the history with another content",
                f"see both ({one.path} is the other), then: mcpiac state rollback {state.stack} {one.serial}",
            )
        if one.serial <= state.serial:
            return


def _nothing_lost(disk: Disk, folder: Path, stack: str, path: Path, spare: Spare) -> None:
    """A missing snapshot is a first run only where there is no history."""
    if history.kept(disk, folder, stack):
        raise faults.damaged(path, "the file is missing, though the history has one", spare(), code="state-missing")


def _journal(path: Path, data: bytes, spare: Spare) -> Parsed:
    try:
        return parse(data)
    except NewerJournal as found:
        raise faults.newer(path, found, JOURNAL_VERSION) from None
    except BadLine as fault:
        raise faults.damaged(path, str(fault), spare(), fault.line, code="journal-damaged") from None


def _joined(
    path: Path, stack: str, base: State | None, digest: str, parsed: Parsed | None
) -> tuple[State, bool, tuple[Diagnostic, ...]]:
    if parsed is None:
        assert base is not None
        return base, False, ()
    header = parsed.header
    serial = base.serial if base else 0
    if header.stack != stack or (base and header.lineage != base.lineage):
        raise faults.damaged(path, "it belongs to another state than the snapshot", "", 1, code="journal-foreign")
    if base is not None and header.base < serial:
        return base, False, ()
    if header.base > serial:
        raise faults.damaged(
            path,
            f"it continues serial {header.base}, but the snapshot has serial {serial}",
            "the snapshot was replaced by an older one: put the newer one back",
            1,
            code="journal-ahead",
        )
    if header.snapshot != digest:
        raise faults.forked(path, f"it continues another snapshot of serial {serial}", "put that snapshot back")
    start = base or State(stack, header.lineage)
    try:
        state = replay(start, parsed.records)
    except Misfit as fault:
        raise faults.damaged(path, str(fault), "", code="journal-damaged") from None
    notes: tuple[Diagnostic, ...] = ()
    if parsed.torn:
        said = f"the last line of {path.name} was cut short by a crash and is dropped"
        notes = (Diagnostic("note", "journal-torn", said, origin=Origin(str(path))),)
    return state, bool(parsed.records), notes


def _spare(disk: Disk, folder: Path, stack: str) -> str:
    """What to type when the snapshot is of no use: names the newest history file that can be read."""
    for one in history.kept(disk, folder, stack):
        try:
            parse_snapshot(one.path, stack, disk.read(one.path))
        except Exception:  # noqa: S112 - whatever is wrong with it, it is not the good one
            continue
        return f"the newest good copy is {one.path}; to use it: mcpiac state rollback {stack} {one.serial}"
    return f"no good copy is in the history: put one of your own back; if nothing of {stack} runs any more, remove it"
