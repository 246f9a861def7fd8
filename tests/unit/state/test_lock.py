"""The lock with real processes: refused at once, taken over from the dead, never from another machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.unit.state.test_store import apply, run
from tests.unit.state.values import LINEAGE

from mcpiac.model.diagnostic import Diagnosed
from mcpiac.model.ports import JournalFailed
from mcpiac.state.lock import Holder, Processes
from mcpiac.state.store import Store, unlock

HOLD = """
import sys, time, asyncio
from pathlib import Path
from mcpiac.state.store import Store
with Store(Path(sys.argv[1])).lock("demo", "apply", lineage="0"*32) as session:
    print("held", flush=True)
    sys.stdin.read()
"""


class Other:
    """A process that holds the lock until it is told to go, or killed."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def leave(self) -> None:
        self.process.communicate(timeout=30)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=30)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


def refusal(store: Store) -> tuple[str, str]:
    began = time.monotonic()
    with pytest.raises(Diagnosed) as fault, store.lock("demo", "apply"):
        pass
    assert time.monotonic() - began < 1
    first = fault.value.diagnostics[0]
    return first.code, f"{first.summary} {first.detail} {first.hint}"


def test_a_second_run_is_refused_at_once_and_told_by_whom(store: Store) -> None:
    other = Other(store.folder)
    try:
        code, words = refusal(store)
        assert code == "state-locked"
        assert f"process {other.process.pid}, `apply`" in words
        assert store.read("demo") is None, "reading needs no lock"
    finally:
        other.leave()
    with store.lock("demo", "apply") as session:
        assert session.notes == ()


def test_a_dead_holder_is_taken_over_and_that_is_said(store: Store) -> None:
    other = Other(store.folder)
    other.kill()
    with store.lock("demo", "apply") as session:
        assert [note.code for note in session.notes] == ["lock-taken-over"]
        assert f"process {other.process.pid}" in session.notes[0].summary


def forge(store: Store, **values: object) -> Holder:
    run(store, "a")
    holder = replace(Processes().holder("apply", "2026-11-30T00:00:00Z"), **values)  # type: ignore[arg-type]
    (store.folder / "demo.holder.json").write_text(json.dumps(asdict(holder)))
    return holder


def test_another_machine_s_holder_is_never_taken_over(store: Store) -> None:
    holder = forge(store, host="elsewhere", pid=999_999)
    code, words = refusal(store)
    assert code == "state-locked"
    assert f"mcpiac unlock {holder.id}" in words


def test_a_holder_from_before_a_restart_is_told_apart(store: Store) -> None:
    forge(store, boot="another", pid=999_999)
    code, words = refusal(store)
    assert code == "state-locked"
    assert "before this machine was started last" in words


def test_a_live_process_is_believed_even_where_flock_says_nothing(store: Store) -> None:
    alive = os.getppid()
    stat = Path(f"/proc/{alive}/stat").read_text().rpartition(")")[2].split()[19]
    forge(store, pid=alive, start=stat)
    assert refusal(store)[0] == "state-locked"


def test_unlock_needs_the_id(store: Store) -> None:
    holder = forge(store, host="elsewhere")
    with pytest.raises(Diagnosed) as fault:
        unlock(store, "demo", "deadbeef")
    assert holder.id in fault.value.diagnostics[0].summary
    assert unlock(store, "demo", holder.id) == holder
    assert sorted(run(store, "b").servers) == ["a", "b"]


def test_a_run_whose_lock_was_taken_away_stops(store: Store) -> None:
    import asyncio

    run(store, "a")
    with pytest.raises(JournalFailed) as fault, store.lock("demo", "apply") as session:
        holder = json.loads((store.folder / "demo.holder.json").read_text())
        unlock(store, "demo", holder["id"])
        asyncio.run(apply(session.journal, "b"))
    assert fault.value.diagnostics[0].code == "lock-lost"
    state = store.read("demo")
    assert state is not None
    assert sorted(state.servers) == ["a"]


def test_a_replaced_lock_file_is_a_lost_lock(store: Store) -> None:
    import asyncio

    with pytest.raises(JournalFailed), store.lock("demo", "apply", lineage=LINEAGE) as session:
        (store.folder / "demo.lock").unlink()
        (store.folder / "demo.lock").touch()
        asyncio.run(apply(session.journal, "a"))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(Diagnosed) as fault, Store(tmp_path / "state").lock("demo", "apply"):
        pass
    assert fault.value.diagnostics[0].code == "state-unwritable"
