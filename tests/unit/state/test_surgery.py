"""Going back and mending: with what is there, keeping what was there, refusing what would forget."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.state.test_store import apply, run
from tests.unit.state.values import INSTANCE, LINEAGE

from mcpiac.model.diagnostic import Diagnosed
from mcpiac.model.live import Found
from mcpiac.state import edits, surgery
from mcpiac.state.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    one = Store(tmp_path / "state")
    run(one, "a")
    run(one, "b")
    return one


def killed(store: Store, *names: str) -> None:
    with pytest.raises(KeyboardInterrupt), store.lock("demo", "apply") as session:
        asyncio.run(apply(session.journal, *names))
        raise KeyboardInterrupt


def put(store: Store, proposal: surgery.Proposal | None) -> Path:
    assert proposal is not None
    return surgery.write(store, "demo", proposal, "state rollback")


def test_going_back_is_a_new_serial_and_says_what_it_forgets(store: Store) -> None:
    proposal = surgery.rollback(store, "demo", 1)
    assert proposal.says == ("no longer recorded: b", "sandboxes that will be orphans, if they live: sbx-b")
    aside = put(store, proposal)
    state = store.read("demo")
    assert state is not None
    assert (state.serial, sorted(state.servers)) == (3, ["a"])
    assert (aside / "demo.json").exists()
    assert [one.serial for one in surgery.kept(store, "demo")] == [3, 2, 1]
    assert sorted(run(store, "c").servers) == ["a", "c"]


@pytest.mark.parametrize("content", [b"", b"{", b"<<<<<<< HEAD\n", None])
def test_a_snapshot_of_no_use_is_mended_without_loss(store: Store, content: bytes | None) -> None:
    killed(store, "c")
    path = store.folder / "demo.json"
    path.unlink() if content is None else path.write_bytes(content)
    assert [one.severity for one in surgery.findings(store, "demo")] == ["error"]
    proposal = surgery.repair(store, "demo")
    assert proposal is not None
    assert "2 journal records are replayed over it" in proposal.says
    put(store, proposal)
    state = store.read("demo")
    assert state is not None
    assert sorted(state.servers) == ["a", "b", "c"]
    assert surgery.findings(store, "demo") == ()


def test_a_journal_damaged_in_the_middle_is_used_as_far_as_it_is_whole(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt), store.lock("demo", "apply") as session:
        asyncio.run(apply(session.journal, "c"))
        asyncio.run(apply(session.journal, "d"))
        raise KeyboardInterrupt
    path = store.folder / "demo.journal"
    lines = path.read_bytes().split(b"\n")
    lines[3] = b"x" + lines[3][1:]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(Diagnosed, match="journal-damaged"):
        store.read("demo")
    proposal = surgery.repair(store, "demo")
    assert proposal is not None
    assert any("its end is damaged" in one for one in proposal.says)
    aside = put(store, proposal)
    state = store.read("demo")
    assert state is not None
    assert sorted(state.servers) == ["a", "b", "c"]
    assert (aside / "demo.journal").read_bytes() == path.read_bytes() if path.exists() else True
    assert (aside / "demo.journal").exists()


def test_nothing_is_mended_where_nothing_is_wrong(store: Store) -> None:
    assert surgery.repair(store, "demo") is None


def test_without_any_copy_it_says_where_to_look(store: Store) -> None:
    for one in (store.folder / "history").iterdir():
        one.unlink()
    (store.folder / "demo.json").write_bytes(b"")
    with pytest.raises(Diagnosed, match="nothing-to-repair-from"):
        surgery.repair(store, "demo")


def test_an_older_file_put_there_by_hand_is_refused_and_can_be_undone(store: Store) -> None:
    path = store.folder / "demo.json"
    path.write_bytes(next(iter((store.folder / "history").glob("demo.00000001.*"))).read_bytes())
    with pytest.raises(Diagnosed, match="state-forked"):
        store.read("demo")
    put(store, surgery.rollback(store, "demo", 2))
    state = store.read("demo")
    assert state is not None
    assert (state.serial, sorted(state.servers)) == (3, ["a", "b"])


def test_another_lineage_needs_force(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    with other.lock("demo", "apply", lineage="f" * 32) as session:
        asyncio.run(apply(session.journal, "z"))
    copy = surgery.kept(other, "demo")[0].path
    (store.folder / "history" / copy.name.replace("00000001", "00000009")).write_bytes(copy.read_bytes())
    with pytest.raises(Diagnosed, match="other-lineage"):
        surgery.rollback(store, "demo", 9)
    assert surgery.rollback(store, "demo", 9, force=True).state.lineage == "f" * 32


def test_a_serial_that_is_not_kept(store: Store) -> None:
    with pytest.raises(Diagnosed, match="it has: 2, 1"):
        surgery.rollback(store, "demo", 7)


def test_a_locked_state_is_not_replaced(store: Store) -> None:
    with store.lock("demo", "apply"), pytest.raises(Diagnosed, match="state-locked"):
        put(store, surgery.rollback(store, "demo", 1))


def test_a_server_goes_on_under_another_name(store: Store) -> None:
    with store.lock("demo", "state mv") as session:
        asyncio.run(edits.move(session.journal, "a", "z"))
    state = store.read("demo")
    assert state is not None
    assert sorted(state.servers) == ["b", "z"]
    assert state.servers["z"].sandbox == "a"
    assert state.sandboxes["a"].secrets == {}
    assert state.plan is None, "a saved plan does not go on over a change by hand"
    with store.lock("demo", "state mv") as session:
        for old, new, code in (
            ("q", "r", "no-such-server"),
            ("b", "z", "move-target-exists"),
            ("b", "B", "bad-name"),
        ):
            with pytest.raises(Diagnosed, match=code):
                asyncio.run(edits.move(session.journal, old, new))


def test_a_server_is_forgotten_and_taken_in_again(store: Store) -> None:
    with store.lock("demo", "state rm") as session:
        box = asyncio.run(edits.remove(session.journal, "a"))
    assert box is not None
    found = Found(box.id, "some name", "ready", owner=box.owner)

    async def adopt(session: object, server: str, id: str = found.id) -> None:
        await edits.adopt(
            session.journal,  # type: ignore[attr-defined]
            server,
            Found(id, "", "ready", owner=box.owner),
            INSTANCE,
            key="new-key",
            variable=server.upper(),
            port=8000,
        )

    with store.lock("demo", "adopt") as session:
        asyncio.run(adopt(session, "a"))
        for server, id in (("a", "sbx-x"), ("c", "sbx-b")):
            with pytest.raises(Diagnosed, match="already-recorded"):
                asyncio.run(adopt(session, server, id))
        asyncio.run(adopt(session, "d", "sbx-strange"))
    state = store.read("demo")
    assert state is not None
    assert state.sandboxes["a"].key == "key-a", "its own marker is kept"
    assert state.sandboxes["a.sbx-strange"].owner == f"{LINEAGE}/d/new-key"
    assert state.servers["d"].service == "a", "inside it has the name that it was made with"
    assert state.servers["a"].spec == {}
