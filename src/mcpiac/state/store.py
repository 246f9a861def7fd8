"""The state of a project's stacks in its ``state/`` folder: read it without a lock, change it under one."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from mcpiac.model.diagnostic import Diagnosed, Diagnostic, Origin
from mcpiac.model.record import State
from mcpiac.state import faults, history, integrity, lock
from mcpiac.state.codec import state_bytes
from mcpiac.state.disk import Disk
from mcpiac.state.journal import FileJournal, Header
from mcpiac.state.ledger import Ledger
from mcpiac.state.loading import Loaded, journal_path, load, snapshot_path

IGNORE = "# What this machine knows about its sandboxes. Teams: use a shared backend, not git.\n*\n!.gitignore\n"


def _now() -> datetime:
    return datetime.now(UTC)


class Store:
    """The states in one folder. ``folder`` is made by the first run that needs it."""

    def __init__(
        self,
        folder: Path,
        *,
        disk: Disk | None = None,
        processes: lock.Processes | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self.folder = folder
        self._disk = disk or Disk()
        self._processes = processes or lock.Processes()
        self._now = now

    def read(self, stack: str) -> State | None:
        """The state now, open entries included, without a lock; None where nothing was ever recorded.

        Raises ``Diagnosed`` for whatever cannot be read: never an empty state in its place.
        """
        loaded = load(self._disk, self.folder, stack)
        return loaded.state if loaded else None

    def names(self) -> list[str]:
        """The stacks that have a state here, by name."""
        try:
            names = self._disk.names(self.folder)
        except OSError as fault:
            raise faults.unreadable(self.folder, fault, "") from None
        found = {name.removesuffix(".json") for name in names if name.endswith(".json")}
        found |= {name.removesuffix(".journal") for name in names if name.endswith(".journal")}
        return sorted(name for name in found if "." not in name and name)

    @contextlib.contextmanager
    def lock(self, stack: str, command: str, *, lineage: str | None = None) -> Iterator[Session]:
        """Hold the stack's lock. ``lineage`` is used if there is no state yet (a saved plan brought its own).

        A body that ends well is finished (``Session.finish``); one that raises leaves the journal to the next run.
        Raises ``Diagnosed``: ``state-locked`` at once when somebody else has it.
        """
        self.prepare()
        since = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        holder = self._processes.holder(command, since)
        held = lock.acquire(self._disk, self.folder, stack, holder, self._processes.alive)
        session: Session | None = None
        try:
            session = Session(self._disk, self.folder, stack, held, lineage or uuid.uuid4().hex)
            yield session
            session.finish()
        finally:
            if session is not None:
                session.close()
            held.release()

    def prepare(self) -> None:
        """Have the folder and its ``.gitignore``."""
        try:
            self._disk.make_folder(self.folder)
            if ".gitignore" not in self._disk.names(self.folder):
                self._disk.replace(self.folder / ".gitignore", IGNORE.encode())
        except OSError as fault:
            raise faults.unwritable(self.folder, fault) from None


class Session:
    """A state that is locked by this run. Made by ``Store.lock``."""

    def __init__(self, disk: Disk, folder: Path, stack: str, held: lock.Lock, lineage: str) -> None:
        self._disk = disk
        self._folder = folder
        self._lock = held
        self._path = snapshot_path(folder, stack)
        loaded = load(disk, folder, stack)
        self._stack = stack
        self._ledger = Ledger(loaded.state if loaded else State(stack, lineage))
        self._serial = loaded.serial if loaded else 0
        self._digest = loaded.snapshot if loaded else ""
        self.notes = (*_taken_over(held), *(loaded.notes if loaded else ()))
        """What this run should tell: a lock taken over, a torn line dropped."""
        if loaded is not None and loaded.journal:
            self._fold(loaded)
        self.journal = self._new_journal()

    @property
    def state(self) -> State:
        """The state now. It shares the tables that the journal changes: take it again after a run."""
        return self._ledger.state

    def finish(self) -> State:
        """Write the snapshot and drop the journal; nothing where nothing was journaled. Raises ``Diagnosed``.

        After a journal write that failed it does nothing: what is on disk is for the next run to read.
        """
        if self.journal.lines and not self.journal.broken:
            self.journal.close()
            self._write()
            self.journal = self._new_journal()
        return self.state

    def close(self) -> None:
        """Let go of the journal's file."""
        self.journal.close()

    def _fold(self, loaded: Loaded) -> None:
        """Begin from a snapshot: a journal that an earlier run left is folded in, an obsolete one removed."""
        if loaded.pending:
            self._write()
        else:
            self._drop_journal()

    def _write(self) -> None:
        state = replace(self._ledger.state, serial=self._serial + 1, parent=self._digest)
        wrong = integrity.broken(state)
        if wrong:
            raise faults.invalid(self._path, wrong)
        data = state_bytes(state)
        self._lock.check()
        try:
            self._disk.replace(self._path, data)
        except OSError as fault:
            raise faults.unwritable(self._path, fault) from None
        self._serial = state.serial
        self._digest = hashlib.sha256(data).hexdigest()
        self._ledger.rebase(state)
        self._drop_journal()
        try:
            history.keep(self._disk, self._folder, self._stack, self._serial, self._digest, data)
        except OSError as fault:
            said = f"no copy of serial {self._serial} could be kept: {fault.strerror}"
            where = Origin(str(history.folder(self._folder)))
            self.notes = (*self.notes, Diagnostic("warning", "history-unwritable", said, origin=where))

    def _drop_journal(self) -> None:
        path = journal_path(self._folder, self._stack)
        try:
            self._disk.remove(path)
            self._disk.sync_folder(self._folder)
        except OSError as fault:
            raise faults.unwritable(path, fault) from None

    def _new_journal(self) -> FileJournal:
        header = Header(self._stack, self._ledger.state.lineage, self._serial, self._digest)
        path = journal_path(self._folder, self._stack)
        return FileJournal(self._disk, path, self._ledger, header, self._lock.check)


def unlock(store: Store, stack: str, id: str, disk: Disk | None = None) -> lock.Holder:
    """Remove the holder file of a lock whose id the user typed. Raises ``Diagnosed`` when it is not that one.

    A run that is still alive finds its lock lost at its next journal line, and stops.
    """
    disk = disk or Disk()
    path = lock.holder_path(store.folder, stack)
    holder = lock.read_holder(disk, path)
    if holder is None or holder.id != id:
        there = f"its lock is {holder.id}, held by {holder}" if holder else "it is not locked"
        raise Diagnosed(Diagnostic("error", "not-that-lock", f"stack {stack} has no lock {id}: {there}"))
    try:
        disk.remove(path)
        disk.sync_folder(store.folder)
    except OSError as fault:
        raise faults.unwritable(path, fault) from None
    return holder


def _taken_over(held: lock.Lock) -> tuple[Diagnostic, ...]:
    if held.taken_from is None:
        return ()
    said = f"an earlier run did not end well: its lock was taken over from {held.taken_from}"
    return (Diagnostic("note", "lock-taken-over", said),)
