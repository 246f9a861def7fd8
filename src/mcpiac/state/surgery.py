"""A state's files looked at and replaced by hand: check, history, rollback, repair. A change can be looked at before
it is made, is made under the lock, and keeps a copy of what was there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from mcpiac.model.diagnostic import Diagnosed, Diagnostic, error
from mcpiac.model.record import State
from mcpiac.state import faults, history, integrity, lock
from mcpiac.state.codec import state_bytes
from mcpiac.state.disk import Disk
from mcpiac.state.journal import BadLine, NewerJournal, parse
from mcpiac.state.ledger import Misfit, replay
from mcpiac.state.loading import journal_path, load, parse_snapshot, snapshot_path
from mcpiac.state.store import Store


@dataclass(frozen=True, slots=True)
class Proposal:
    """What would be written in place of a state, and in words what that changes."""

    state: State
    says: tuple[str, ...]


def findings(store: Store, stack: str, disk: Disk | None = None) -> tuple[Diagnostic, ...]:
    """``state check``: everything that reading the stack's files finds wrong; nothing where all is well."""
    try:
        loaded = load(disk or Disk(), store.folder, stack)
    except Diagnosed as fault:
        return fault.diagnostics
    if loaded is None:
        return error("no-such-state", f"nothing is recorded of a stack {stack}").diagnostics
    return loaded.notes


def kept(store: Store, stack: str, disk: Disk | None = None) -> list[history.Kept]:
    """``state history``: the copies of earlier snapshots, newest first."""
    return history.kept(disk or Disk(), store.folder, stack)


def rollback(store: Store, stack: str, serial: int, *, disk: Disk | None = None, force: bool = False) -> Proposal:
    """``state rollback``: the state as of ``serial``, with a journal that continues it replayed over it.

    The present files need not be readable. Raises ``Diagnosed``: no such copy, a copy that is damaged, or (without
    ``force``) one of another lineage.
    """
    disk = disk or Disk()
    copies = history.kept(disk, store.folder, stack)
    chosen = next((one for one in copies if one.serial == serial), None)
    if chosen is None:
        have = ", ".join(str(one.serial) for one in copies) or "none"
        raise error("no-such-serial", f"the history of {stack} has no serial {serial}; it has: {have}")
    data = _read(disk, chosen.path)
    old = parse_snapshot(chosen.path, stack, data)
    now = _present(disk, store.folder, stack)
    if now is not None and now.lineage != old.lineage and not force:
        raise error(
            "other-lineage",
            f"serial {serial} is of lineage {old.lineage}, and the present state of {now.lineage}",
            hint="what is recorded now would be forgotten; if that is meant, add --force",
        )
    state, says = _continued(disk, store.folder, stack, old, hashlib.sha256(data).hexdigest())
    newest = max([one.serial for one in copies] + ([now.serial] if now else []) + _base(disk, store.folder, stack))
    return Proposal(replace(state, serial=newest), (*says, *_differences(now, state)))


def repair(store: Store, stack: str, *, disk: Disk | None = None) -> Proposal | None:
    """``state repair``: what can be mended without guessing; None where nothing is wrong.

    An unreadable snapshot: the newest good copy, and the journal as far as it is whole. Raises ``Diagnosed`` where
    nothing good is left.
    """
    disk = disk or Disk()
    if not any(one.severity == "error" for one in findings(store, stack, disk)):
        return None
    for one in history.kept(disk, store.folder, stack):
        try:
            return rollback(store, stack, one.serial, disk=disk)
        except Diagnosed:
            continue
    raise error(
        "nothing-to-repair-from",
        f"no copy of the state of {stack} is left that could be used",
        hint="what runs is found by its owner marker: `mcpiac plan` lists orphans, `mcpiac adopt` takes them in",
    )


def write(store: Store, stack: str, proposal: Proposal, command: str, *, disk: Disk | None = None) -> Path:
    """Put a proposal in the place of the present state, under the lock; the present files are kept beside, under the
    folder that is answered. Raises ``Diagnosed``."""
    disk = disk or Disk()
    with _locked(store, stack, command, disk):
        aside = store.folder / "replaced" / f"{stack}.{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        path, beside = snapshot_path(store.folder, stack), journal_path(store.folder, stack)
        present = b""
        try:
            disk.make_folder(aside)
            for file in (path, beside):
                data = _maybe(disk, file)
                if data is not None:
                    present = data if file == path else present
                    disk.replace(aside / file.name, data)
            parent = hashlib.sha256(present).hexdigest() if present else ""
            state = replace(proposal.state, serial=proposal.state.serial + 1, parent=parent)
            broken = integrity.broken(state)
            if broken:
                raise faults.invalid(path, broken)
            data = state_bytes(state)
            disk.replace(path, data)
            # Its base is below the new serial: a crash before this leaves it obsolete.
            disk.remove(beside)
            history.keep(disk, store.folder, stack, state.serial, hashlib.sha256(data).hexdigest(), data)
        except OSError as fault:
            raise faults.unwritable(path, fault) from None
    return aside


@contextmanager
def _locked(store: Store, stack: str, command: str, disk: Disk) -> Iterator[None]:
    store.prepare()
    holder = lock.Processes().holder(command, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    held = lock.acquire(disk, store.folder, stack, holder, lock.Processes().alive)
    try:
        yield
    finally:
        held.release()


def _present(disk: Disk, folder: Path, stack: str) -> State | None:
    """The present snapshot as far as it can be read at all, its place in the history not asked."""
    try:
        data = _maybe(disk, snapshot_path(folder, stack))
        return parse_snapshot(snapshot_path(folder, stack), stack, data) if data is not None else None
    except Diagnosed:
        return None


def _continued(disk: Disk, folder: Path, stack: str, old: State, digest: str) -> tuple[State, tuple[str, ...]]:
    """``old`` with the journal replayed that continues exactly it, as far as that is whole."""
    data = _maybe(disk, journal_path(folder, stack))
    if data is None:
        return old, ()
    whole = data
    while True:
        try:
            parsed = parse(whole)
            break
        except NewerJournal:
            return old, ("the journal is of a newer mcpiac, and is left out",)
        except BadLine as fault:
            if fault.line == 1:
                return old, ("the journal cannot be read, and is left out",)
            whole = b"\n".join(whole.split(b"\n")[: fault.line - 1]) + b"\n"
    if parsed.header.lineage != old.lineage or parsed.header.snapshot != digest:
        return old, ()
    try:
        state = replay(old, parsed.records)
    except Misfit:
        return old, ("the journal does not fit together, and is left out",)
    lost = "" if whole == data else "; its end is damaged and is left out"
    return state, (f"{len(parsed.records)} journal records are replayed over it{lost}",)


def _base(disk: Disk, folder: Path, stack: str) -> list[int]:
    data = _maybe(disk, journal_path(folder, stack))
    try:
        return [parse(data.split(b"\n", 1)[0] + b"\n").header.base] if data is not None else []
    except (BadLine, NewerJournal):
        return []


def _differences(now: State | None, then: State) -> tuple[str, ...]:
    if now is None:
        return (f"the present state cannot be read; {len(then.servers)} servers are recorded again",)
    gone, back = sorted(now.servers.keys() - then.servers.keys()), sorted(then.servers.keys() - now.servers.keys())
    boxes = {box.id for box in now.sandboxes.values()} - {box.id for box in then.sandboxes.values()}
    says = []
    if gone:
        says.append(f"no longer recorded: {', '.join(gone)}")
    if back:
        says.append(f"recorded again: {', '.join(back)}")
    if boxes:
        says.append(f"sandboxes that will be orphans, if they live: {', '.join(sorted(boxes))}")
    return tuple(says) or ("the same servers, as they were recorded then",)


def _read(disk: Disk, path: Path) -> bytes:
    try:
        return disk.read(path)
    except OSError as fault:
        raise faults.unreadable(path, fault, "") from None


def _maybe(disk: Disk, path: Path) -> bytes | None:
    """A file's bytes; None where there is none or where it is no file that could be read."""
    try:
        return disk.read(path)
    except OSError:
        return None
