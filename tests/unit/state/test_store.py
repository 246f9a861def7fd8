"""The store: what is written, what is read back, and what every damage is called."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from pathlib import Path

import pytest
from tests.unit.state.values import LINEAGE, create, effect

from mcpiac.model.diagnostic import Diagnosed
from mcpiac.model.record import SandboxRecord, State
from mcpiac.state import history
from mcpiac.state.disk import Disk
from mcpiac.state.journal import FileJournal
from mcpiac.state.store import Session, Store


async def apply(book: FileJournal, *names: str) -> None:
    lineage = book.state.lineage

    async def one(name: str) -> None:
        entry = await book.begin(create(name), plan="p", at="2026-11-30T00:00:00+00:00")
        await book.end(entry, ok=True, effect=effect(name, lineage))

    await asyncio.gather(*(one(name) for name in names))


def run(store: Store, *names: str) -> State:
    with store.lock("demo", "apply", lineage=LINEAGE) as session:
        asyncio.run(apply(session.journal, *names))
    state = store.read("demo")
    assert state is not None
    return state


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


def told(store: Store) -> tuple[str, str]:
    """The code of what reading says, and all its words."""
    with pytest.raises(Diagnosed) as fault:
        store.read("demo")
    first = fault.value.diagnostics[0]
    return first.code, f"{first.summary} {first.origin} {first.hint}"


def test_nothing_recorded_is_none_and_makes_no_file(store: Store) -> None:
    assert store.read("demo") is None
    assert store.names() == []
    assert not store.folder.exists()


def test_what_is_applied_is_read_back(store: Store) -> None:
    state = run(store, "a", "b")
    assert (state.serial, state.parent, sorted(state.servers)) == (1, "", ["a", "b"])
    assert state.servers["a"] == effect("a").servers["a"]
    assert state.sandboxes["b"] == effect("b").sandboxes["b"]
    assert state.plan is not None
    assert sorted(state.plan.done) == ["a.create", "b.create"]
    again = run(store, "c")
    assert again.serial == 2
    assert re.fullmatch(r"[0-9a-f]{64}", again.parent)
    assert store.names() == ["demo"]


def test_a_run_without_changes_writes_nothing(store: Store) -> None:
    run(store, "a")
    path = store.folder / "demo.json"
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(store.folder)))
    with store.lock("demo", "apply"):
        pass
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(store.folder))) == before


def test_the_folder_ignores_itself_and_files_are_private(store: Store) -> None:
    run(store, "a")
    assert (store.folder / ".gitignore").read_text().splitlines()[-2:] == ["*", "!.gitignore"]
    modes = {path.name: path.stat().st_mode & 0o777 for path in store.folder.rglob("*") if path.is_file()}
    assert set(modes.values()) == {0o600}


def test_the_journal_is_read_while_a_run_goes_on(store: Store) -> None:
    with store.lock("demo", "apply", lineage=LINEAGE) as session:
        asyncio.run(apply(session.journal, "a"))
        seen = store.read("demo")
        assert seen is not None
        assert (seen.serial, sorted(seen.servers)) == (0, ["a"])
    assert not (store.folder / "demo.journal").exists()


def test_what_a_killed_run_left_is_folded_in_by_the_next(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt), store.lock("demo", "apply", lineage=LINEAGE) as session:
        asyncio.run(apply(session.journal, "a"))
        asyncio.run(_begin(session, "b"))
        raise KeyboardInterrupt
    assert not (store.folder / "demo.json").exists()
    before = store.read("demo")
    assert before is not None
    assert [entry.action.id for entry in before.open] == ["b.create"]
    with store.lock("demo", "apply") as session:
        assert session.state.lineage == LINEAGE
        assert session.state.serial == 1
        assert [entry.action.id for entry in session.state.open] == ["b.create"]
        asyncio.run(_end(session, "b"))
    after = store.read("demo")
    assert after is not None
    assert after.open == ()
    assert sorted(after.servers) == ["a", "b"]
    assert after.serial == 2


async def _begin(session: Session, name: str) -> None:
    await session.journal.begin(create(name), plan="p", at="2026-11-30T00:00:00+00:00")


async def _end(session: Session, name: str) -> None:
    await session.journal.end(session.state.open[0], ok=True, effect=effect(name))


def test_an_obsolete_journal_says_nothing_any_more(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt), store.lock("demo", "apply", lineage=LINEAGE) as session:
        asyncio.run(apply(session.journal, "a"))
        raise KeyboardInterrupt
    old = (store.folder / "demo.journal").read_bytes()
    run(store, "b")
    (store.folder / "demo.journal").write_bytes(old)
    state = store.read("demo")
    assert state is not None
    assert sorted(state.servers) == ["a", "b"]
    assert sorted(run(store, "c").servers) == ["a", "b", "c"]
    assert not (store.folder / "demo.journal").exists()


def test_a_journal_ahead_of_its_snapshot_is_an_error(store: Store) -> None:
    run(store, "a")
    old = (store.folder / "demo.json").read_bytes()
    run(store, "b")
    with pytest.raises(KeyboardInterrupt), store.lock("demo", "apply") as session:
        asyncio.run(apply(session.journal, "c"))
        raise KeyboardInterrupt
    (store.folder / "demo.json").write_bytes(old)
    for path in (store.folder / "history").iterdir():
        path.unlink()
    code, words = told(store)
    assert code == "journal-ahead"
    assert "serial 2" in words


def test_a_snapshot_older_than_the_history_is_refused(store: Store) -> None:
    run(store, "a")
    old = (store.folder / "demo.json").read_bytes()
    run(store, "b")
    (store.folder / "demo.json").write_bytes(old)
    code, words = told(store)
    assert code == "state-forked"
    assert "mcpiac state rollback demo 2" in words


def test_the_same_serial_with_another_content_is_a_fork(store: Store) -> None:
    run(store, "a")
    path = store.folder / "demo.json"
    path.write_bytes(path.read_bytes().replace(b'"sbx-a"', b'"sbx-x"'))
    assert told(store)[0] == "state-forked"


def test_a_journal_over_another_snapshot_of_the_serial_is_a_fork(store: Store) -> None:
    run(store, "a")
    with pytest.raises(KeyboardInterrupt), store.lock("demo", "apply") as session:
        asyncio.run(apply(session.journal, "b"))
        raise KeyboardInterrupt
    path = store.folder / "demo.json"
    path.write_bytes(path.read_bytes().replace(b'"sbx-a"', b'"sbx-x"'))
    for one in (store.folder / "history").iterdir():
        one.unlink()
    assert told(store)[0] == "state-forked"


MERGE = b'{\n<<<<<<< HEAD\n "stack": "demo"\n=======\n "stack": "demo"\n>>>>>>> other\n}\n'


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "state-empty"),
        (b"\0" * 4096, "state-empty"),
        (b"  \n", "state-empty"),
        (MERGE, "state-merge-conflict"),
        (b"{", "state-damaged"),
        (b"[]", "state-damaged"),
        (b"\xff\xfe", "state-damaged"),
        (b'{"version": 1}', "state-damaged"),
        (b'{"version": 2, "stack": "demo"}', "state-newer"),
        (b'{"version": "x"}', "state-damaged"),
    ],
)
def test_a_file_of_no_use_is_an_error_that_names_the_newest_good_copy(
    store: Store, content: bytes, code: str
) -> None:
    run(store, "a")
    run(store, "b")
    (store.folder / "demo.json").write_bytes(content)
    got, words = told(store)
    assert got == code
    if code != "state-newer":
        newest = history.kept(Disk(), store.folder, "demo")[0]
        assert newest.serial == 2
        assert str(newest.path) in words
    with pytest.raises(Diagnosed), store.lock("demo", "apply"):
        pass


def test_a_copy_that_is_damaged_too_is_not_the_good_one(store: Store) -> None:
    run(store, "a")
    run(store, "b")
    newest, older = history.kept(Disk(), store.folder, "demo")
    newest.path.write_bytes(b"{")
    (store.folder / "demo.json").write_bytes(b"{")
    _, words = told(store)
    assert str(older.path) in words


def test_a_missing_snapshot_with_a_history_is_no_first_run(store: Store) -> None:
    run(store, "a")
    (store.folder / "demo.json").unlink()
    assert told(store)[0] == "state-missing"


def test_a_link_and_a_folder_in_place_of_the_file(store: Store, tmp_path: Path) -> None:
    run(store, "a")
    path = store.folder / "demo.json"
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    code, words = told(store)
    assert (code, "symbolic link" in words) == ("state-unreadable", True)
    path.unlink()
    path.mkdir()
    assert told(store)[0] == "state-unreadable"
    path.rmdir()
    os.mkfifo(path)
    assert told(store)[0] == "state-unreadable"


def test_a_state_of_another_stack_is_refused(store: Store) -> None:
    run(store, "a")
    (store.folder / "demo.json").rename(store.folder / "other.json")
    with pytest.raises(Diagnosed) as fault:
        store.read("other")
    assert "state of stack demo" in fault.value.diagnostics[0].summary


def test_keys_that_nobody_knows_are_not_dropped_silently(store: Store) -> None:
    run(store, "a")
    path = store.folder / "demo.json"
    data = json.loads(path.read_bytes())
    data["servers"]["a"]["extra"] = 1
    path.write_text(json.dumps(data))
    for one in (store.folder / "history").iterdir():
        one.unlink()
    code, words = told(store)
    assert code == "state-damaged"
    assert "servers.a.extra" in words


def test_a_state_that_breaks_a_rule_is_refused_by_its_number(store: Store) -> None:
    run(store, "a")
    path = store.folder / "demo.json"
    data = json.loads(path.read_bytes())
    data["servers"]["a"]["hosted"]["url"] += "?_token=abc"
    path.write_text(json.dumps(data))
    for one in (store.folder / "history").iterdir():
        one.unlink()
    code, words = told(store)
    assert code == "state-invalid"
    assert "rule 7" in words
    assert "abc" not in words


def test_a_run_never_writes_a_state_that_breaks_a_rule(store: Store) -> None:
    bad = SandboxRecord("sbx-a", "k", "somebody/a/k", "2026")

    async def spoil(session: Session) -> None:
        entry = await session.journal.begin(create("a"), plan="p", at="")
        await session.journal.end(entry, ok=True, effect=effect("a").__class__({"a": bad}, {}, None))

    with pytest.raises(Diagnosed) as fault, store.lock("demo", "apply", lineage=LINEAGE) as session:
        asyncio.run(spoil(session))
    assert {one.code for one in fault.value.diagnostics} == {"state-invalid"}
    assert not (store.folder / "demo.json").exists()


def test_the_last_twenty_are_kept(store: Store) -> None:
    for n in range(23):
        run(store, f"s{n:02}")
    serials = [one.serial for one in history.kept(Disk(), store.folder, "demo")]
    assert serials == list(range(23, 3, -1))


def test_a_thousand_servers_load_in_a_tenth_of_a_second(store: Store) -> None:
    run(store, *(f"s{n}" for n in range(1000)))
    best = 1e9
    for _ in range(5):
        began = time.perf_counter()
        state = store.read("demo")
        best = min(best, time.perf_counter() - began)
    assert state is not None
    assert len(state.servers) == 1000
    assert best <= 0.1


def test_two_stacks_do_not_mix(store: Store) -> None:
    run(store, "a")
    with store.lock("demo-2", "apply"):
        pass
    assert store.names() == ["demo"]
    assert store.read("demo-2") is None
