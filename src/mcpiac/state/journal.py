"""The journal: what a run did since the snapshot, in lines that are each whole or not there.

A line is ``<check> <json>\\n``; ``check`` is the first 16 hex digits of SHA-256 over the previous line's check, a
space and the JSON, so that a line which was lost, repeated, moved or written by another run does not fit. The first
line is the header and comes into being together with the file (by rename): it names the lineage, the base serial and
the digest of the snapshot that it continues. Every other line is a list of records that became durable together.
Only the last line can be torn by a crash, and only it is dropped.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mcpiac.model.action import Action, Entry
from mcpiac.model.diagnostic import Diagnosed
from mcpiac.model.ports import JournalFailed
from mcpiac.model.record import Effect, Instance, SandboxRecord, ServerRecord, State
from mcpiac.state import faults
from mcpiac.state.codec import Unfit, compact, record_data, record_of
from mcpiac.state.disk import Appender, Disk
from mcpiac.state.ledger import Begin, End, Ledger, Progress, Record

JOURNAL_VERSION = 1
_CHECK = 16

GATHER = 0.003
"""Seconds for which a line waits for others to share its fsync, while lines follow each other closely."""

BUSY = 0.02
"""Seconds since the last line within which they do."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a journal continues. ``snapshot`` is the SHA-256 of the snapshot's bytes, '' for none."""

    stack: str
    lineage: str
    base: int
    snapshot: str
    journal: int = JOURNAL_VERSION


@dataclass(frozen=True, slots=True)
class Parsed:
    """A journal, read. ``torn`` is the number of bytes of a dropped last line."""

    header: Header
    records: tuple[Record, ...]
    torn: int


class BadLine(ValueError):
    """A line that cannot be what we wrote, and which (counting from 1)."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class NewerJournal(ValueError):
    """The journal has a version that this program does not know."""


def frame(previous: str, value: Any) -> tuple[bytes, str]:
    """One line, and its check for the next one."""
    text = compact(value)
    check = _check(previous, text)
    return check.encode() + b" " + text + b"\n", check


def parse(data: bytes) -> Parsed:
    """A journal's bytes. Raises ``BadLine``, ``NewerJournal``."""
    header: Header | None = None
    records: list[Record] = []
    check, at, number = "", 0, 0
    while at < len(data):
        number += 1
        end = data.find(b"\n", at)
        last = end in (-1, len(data) - 1)
        line = data[at : end if end >= 0 else len(data)]
        told, text = line[: _CHECK + 1].decode("latin-1"), line[_CHECK + 1 :]
        whole = end >= 0 and told == f"{_check(check, text)} "
        if not whole:
            if last and header is not None:
                return Parsed(header, tuple(records), len(data) - at)
            raise BadLine(number, "the line does not fit its checksum")
        check = line[:_CHECK].decode()
        try:
            value = json.loads(line[_CHECK + 1 :])
            if header is None:
                header = _header(value)
            else:
                records += [record_of(item) for item in value]
        except (Unfit, ValueError, TypeError, KeyError) as fault:
            if isinstance(fault, NewerJournal):
                raise
            raise BadLine(number, str(fault)) from None
        at = end + 1
    if header is None:
        raise BadLine(1, "the file is empty")
    return Parsed(header, tuple(records), 0)


def _header(value: Any) -> Header:
    if value["journal"] != JOURNAL_VERSION:
        raise NewerJournal(str(value["journal"]))
    return Header(value["stack"], value["lineage"], value["base"], value["snapshot"])


def _check(previous: str, text: bytes) -> str:
    return hashlib.sha256(previous.encode() + b" " + text).hexdigest()[:_CHECK]


class FileJournal:
    """``model.ports.Journal`` over a file. ``guard`` is asked before each line whether the lock is still ours.

    Records that are made while a line is being written go together into the next line, so a hundred chains share an
    fsync. After a failed write nothing can be added any more: what is on disk is then not known until the next load.
    """

    def __init__(self, disk: Disk, path: Path, ledger: Ledger, header: Header, guard: Callable[[], None]) -> None:
        self._disk = disk
        self._path = path
        self._ledger = ledger
        self._header = header
        self._guard = guard
        self._file: Appender | None = None
        self._last = ""
        self._waiting: list[tuple[Record, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._broken: Exception | None = None
        self._wrote_at = float("-inf")
        self.lines = 0
        """Lines that this run wrote, the header not counted."""

    @property
    def state(self) -> State:
        """The state as of the last durable line."""
        return self._ledger.state

    @property
    def broken(self) -> bool:
        """Whether a write failed."""
        return self._broken is not None

    def sandbox(self, key: str) -> SandboxRecord | None:
        """One sandbox's record."""
        return self._ledger.sandbox(key)

    def server(self, name: str) -> ServerRecord | None:
        """One server's record."""
        return self._ledger.server(name)

    def begin(
        self, action: Action, *, plan: str, at: str, takes: int | None = None, instance: Instance | None = None
    ) -> Awaitable[Entry]:
        """Open an entry."""
        number = self._ledger.take_number()
        return self._entry(number, self._add(Begin(number, action, at, plan, takes, instance)))

    def progress(self, entry: Entry, *, step: str | None = None, found: str | None = None) -> Awaitable[Entry]:
        """How far it came."""
        return self._entry(entry.number, self._add(Progress(entry.number, step, found)))

    def end(
        self, entry: Entry, *, ok: bool, effect: Effect, note: str = "", plan_done: bool = True
    ) -> Awaitable[None]:
        """Close an entry."""
        return self._add(End(entry.number, ok, effect, note, plan_done))

    async def settle(self) -> None:
        """Wait until everything that was added is on disk, or failed."""
        while self._writer is not None and not self._writer.done():
            await asyncio.wait([self._writer])

    def close(self) -> None:
        """No more lines in this file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _entry(self, number: int, durable: Awaitable[None]) -> Entry:
        await durable
        return self._ledger.entry(number)

    def _add(self, record: Record) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        durable: asyncio.Future[None] = loop.create_future()
        if self._broken is not None:
            durable.set_exception(self._broken)
            return durable
        self._waiting.append((record, durable))
        if self._writer is None or self._writer.done():
            self._writer = loop.create_task(self._write_all())
        return durable

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._broken is None:
            if loop.time() - self._wrote_at < BUSY:
                await asyncio.sleep(GATHER)
            batch, self._waiting = self._waiting, []
            try:
                line, check = frame(self._check_before(), [record_data(record) for record, _ in batch])
                await self._disk.aside(lambda line=line: self._write(line))  # type: ignore[misc]
                self._last = check
                self._wrote_at = loop.time()
                self.lines += 1
                for record, _ in batch:
                    self._ledger.apply(record)
            except OSError as fault:
                self._fail(JournalFailed(*faults.unwritable(self._path, fault).diagnostics), batch)
            except Diagnosed as fault:
                self._fail(JournalFailed(*fault.diagnostics), batch)
            except Exception as fault:
                self._fail(fault, batch)
            except BaseException:
                self._fail(JournalFailed(*faults.cut_short(self._path).diagnostics), batch)
                raise
            for _, durable in batch:
                if not durable.done():
                    durable.set_result(None)

    def _fail(self, fault: Exception, batch: list[tuple[Record, asyncio.Future[None]]]) -> None:
        """Nothing more is written: the ledger may be behind the file now, and only a new load tells."""
        self._broken = fault
        for _, durable in [*batch, *self._waiting]:
            if not durable.done():
                durable.set_exception(fault)
                durable.exception()  # whoever awaits it sees it; one that nobody awaits any more is no news
        self._waiting = []

    def _check_before(self) -> str:
        return self._last or frame("", asdict(self._header))[1]

    def _write(self, line: bytes) -> None:
        self._guard()
        if self._file is None:
            self._disk.replace(self._path, frame("", asdict(self._header))[0])
            self._file = self._disk.appender(self._path)
        self._file.append(line)
