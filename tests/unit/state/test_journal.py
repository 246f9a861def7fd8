"""The journal's lines: whole or not there, in order, of one run."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.state.values import LINEAGE, create, effect

from mcpiac.model.ports import JournalFailed
from mcpiac.model.record import Effect, State
from mcpiac.state.codec import record_data
from mcpiac.state.disk import Appender, Disk
from mcpiac.state.journal import BadLine, FileJournal, Header, NewerJournal, frame, parse
from mcpiac.state.ledger import Begin, End, Ledger, Misfit, Progress, Record, replay

HEAD = Header("demo", LINEAGE, 0, "")


def lines_of(batches: Sequence[Sequence[Record]]) -> list[bytes]:
    line, check = frame("", {"stack": "demo", "lineage": LINEAGE, "base": 0, "snapshot": "", "journal": 1})
    lines = [line]
    for batch in batches:
        line, check = frame(check, [record_data(record) for record in batch])
        lines.append(line)
    return lines


def history(count: int) -> list[list[Record]]:
    """``count`` creates that went well, two lines each, names with what JSON must escape."""
    batches: list[list[Record]] = []
    for n in range(count):
        name = f"s{n}"
        batches.append([Begin(n + 1, create(name), "2026-11-30T00:00:00+00:00", 'plan "é"\n')])
        batches.append([Progress(n + 1, found=f"sbx-{name}"), End(n + 1, True, effect(name), "note ü ", True)])
    return batches


@given(count=st.integers(0, 4), cut=st.integers(0, 20_000))
def test_any_truncation_loads_as_a_prefix_or_is_refused_for_its_header(count: int, cut: int) -> None:
    batches = history(count)
    lines = lines_of(batches)
    data = b"".join(lines)
    cut = min(cut, len(data))
    if cut < len(lines[0]):
        with pytest.raises(BadLine):
            parse(data[:cut])
        return
    whole, size = 0, len(lines[0])
    while whole < len(batches) and size + len(lines[whole + 1]) <= cut:
        size += len(lines[whole + 1])
        whole += 1
    parsed = parse(data[:cut])
    assert list(parsed.records) == [record for batch in batches[:whole] for record in batch]
    assert parsed.torn == cut - size


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
@example(at=16, bit=0)  # the space after a checksum
def test_a_flipped_bit_is_never_read_as_something_else(at: int, bit: int) -> None:
    batches = history(3)
    data = bytearray(b"".join(lines_of(batches)))
    at %= len(data)
    data[at] ^= 1 << bit
    try:
        parsed = parse(bytes(data))
    except (BadLine, NewerJournal):
        return
    records = [record for batch in batches for record in batch]
    assert list(parsed.records) == records[: len(parsed.records)]
    assert parsed.torn, "only a damaged last line may be dropped"


def test_lines_of_two_runs_do_not_fit_together() -> None:
    lines = lines_of(history(3))
    for wrong in ([0, 2, 1, 3], [0, 1, 1, 2], [0, 2, 3], [0, 1, 3, 4]):
        with pytest.raises(BadLine):
            parse(b"".join(lines[n] for n in wrong) + lines[4])


@pytest.mark.parametrize("data", [b"", b"\n", b"garbage\n", b"\0" * 200])
def test_a_journal_without_its_header_is_damage(data: bytes) -> None:
    with pytest.raises(BadLine):
        parse(data)


def test_a_newer_journal_is_refused() -> None:
    line, _ = frame("", {"journal": 2})
    with pytest.raises(NewerJournal):
        parse(line)


def test_replay_is_pure_and_gives_what_the_records_say() -> None:
    records = [record for batch in history(2) for record in batch]
    start = State("demo", LINEAGE)
    state = replay(start, records)
    assert start.sandboxes == {}
    assert sorted(state.sandboxes) == sorted(state.servers) == ["s0", "s1"]
    assert state.open == ()
    assert state.plan is not None
    assert state.plan.done == ("s0.create", "s1.create")
    assert replay(start, records) == state
    halfway = replay(start, records[:4])
    assert [(entry.action.id, entry.found) for entry in halfway.open] == [("s1.create", None)]


def test_a_record_that_does_not_fit_is_refused() -> None:
    start = State("demo", LINEAGE)
    begin = Begin(1, create("a"), "")
    for records in ([End(1, True, Effect())], [begin, begin], [Progress(3)], [Begin(2, create("a"), "", takes=1)]):
        with pytest.raises(Misfit):
            replay(start, records)


def test_an_entry_that_is_taken_over_leaves_in_the_same_record() -> None:
    state = replay(State("demo", LINEAGE), [Begin(1, create("a"), ""), Begin(2, create("a"), "", takes=1)])
    assert [entry.number for entry in state.open] == [2]


class Counting(Disk):
    """Counts what reaches the disk; after ``good`` appends each fails with ``fault``."""

    def __init__(self, good: int = 10**9, fault: int = errno.ENOSPC) -> None:
        self.appends = 0
        self.good = good
        self.fault = fault

    def appender(self, path: Path) -> Appender:
        inner, disk = super().appender(path), self

        class Watched(Appender):
            def __init__(self) -> None: ...

            def append(self, data: bytes) -> None:
                disk.appends += 1
                if disk.appends > disk.good:
                    raise OSError(disk.fault, "no")
                inner.append(data)

            def close(self) -> None:
                inner.close()

        return Watched()


def journal(folder: Path, disk: Disk) -> FileJournal:
    return FileJournal(disk, folder / "demo.journal", Ledger(State("demo", LINEAGE)), HEAD, lambda: None)


def test_chains_share_lines(tmp_path: Path) -> None:
    disk = Counting()
    book = journal(tmp_path, disk)

    async def chain(name: str) -> None:
        entry = await book.begin(create(name), plan="p", at="")
        assert any(one.number == entry.number for one in book.state.open)
        await book.end(entry, ok=True, effect=effect(name))
        assert book.sandbox(name) is not None

    async def run() -> None:
        await asyncio.gather(*(chain(f"s{n}") for n in range(100)))

    asyncio.run(run())
    assert disk.appends <= 10
    assert replay(State("demo", LINEAGE), parse((tmp_path / "demo.journal").read_bytes()).records) == book.state


@pytest.mark.parametrize("count", [10, 100, 1000])
def test_the_bytes_of_an_action_do_not_grow_with_the_fleet(tmp_path: Path, count: int) -> None:
    book = journal(tmp_path, Disk())

    async def run() -> int:
        for n in range(count):
            entry = await book.begin(create(f"s{n:04}"), plan="p", at="")
            await book.end(entry, ok=True, effect=effect(f"s{n:04}"))
        before = (tmp_path / "demo.journal").stat().st_size
        entry = await book.begin(create("last0"), plan="p", at="")
        await book.end(entry, ok=True, effect=effect("last0"))
        return (tmp_path / "demo.journal").stat().st_size - before

    class NoSync(Disk):
        def appender(self, path: Path) -> Appender:
            inner = super().appender(path)
            inner.append = lambda data: path.open("ab").write(data)  # type: ignore[method-assign,assignment]
            return inner

    book._disk = NoSync()
    assert asyncio.run(run()) < 2400


def test_after_a_failed_write_nothing_can_be_added(tmp_path: Path) -> None:
    book = journal(tmp_path, Counting(good=1))

    async def run() -> None:
        entry = await book.begin(create("a"), plan="p", at="")
        with pytest.raises(JournalFailed) as told:
            await book.end(entry, ok=True, effect=effect("a"))
        assert told.value.diagnostics[0].code == "state-unwritable"
        assert "full" in told.value.diagnostics[0].summary
        for again in (book.begin(create("b"), plan="p", at=""), book.progress(entry, step="x")):
            with pytest.raises(JournalFailed):
                await again

    asyncio.run(run())
    assert book.broken
    assert book.sandbox("a") is None
    assert [entry.action.id for entry in book.state.open] == ["a.create"]
