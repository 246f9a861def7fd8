"""The files of a sandbox: whole or not at all, for one user only."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from mcpiac.local.records import FORMAT, Folder, Record, RecordError, Records, Runtime, StoredMount, new_id


def _record(**more: object) -> Record:
    return Record(
        **{"id": new_id(), "key": "k", "digest": "d", "type": "small", "created": 1.0, "updated": 1.0, **more}
    )


def _made(records: Records, **more: object) -> tuple[Folder, Record]:
    record = _record(**more)
    folder = records.folder(record.id)
    folder.make(record, {"TOKEN": "canary"})
    return folder, record


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = Records(tmp_path)
    mounts = [StoredMount({"path": "/opt/mcpiac/npm/x@1"}, "/store/x")]
    folder, record = _made(records, packages=mounts, deadline=5.5, hosted=[{"port": 8000, "token": "t"}])
    assert folder.read() == record
    assert folder.read_env() == {"TOKEN": "canary"}
    assert [found for _, found in records.all()] == [record]


def test_only_its_user_can_read_anything(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder, _ = _made(Records(tmp_path))
        folder.write_runtime(Runtime("boot", (1, 2), (3, 4), 5))
        folder.touch(100.0)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()}
    assert modes == {name: 0o700 if name == "disk" else 0o600 for name in modes}
    assert set(modes) == {"record.json", "env.json", "runtime.json", "activity", "disk"}
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_the_secret_is_in_the_env_file_and_nowhere_else(tmp_path: Path) -> None:
    folder, record = _made(Records(tmp_path))
    folder.write(record)
    holding = [path.name for path in folder.path.iterdir() if path.is_file() and b"canary" in path.read_bytes()]
    assert holding == ["env.json"]


def test_a_create_that_was_cut_leaves_no_sandbox(tmp_path: Path) -> None:
    records = Records(tmp_path)
    half = records.folder("sbx_half")
    os.makedirs(half.disk)
    half.write_env({"TOKEN": "canary"})
    assert list(records.all()) == []
    assert not half.path.exists()
    records.empty_trash()
    assert list(records.trash.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', '{"format": 99}', '{"format": 1, "id": "x"}'])
def test_a_record_that_cannot_be_read_is_an_error_and_stays(tmp_path: Path, text: str) -> None:
    records = Records(tmp_path)
    folder, _ = _made(records)
    (folder.path / "record.json").write_text(text)
    [(_, found)] = records.all()
    assert isinstance(found, RecordError)
    assert folder.path.exists()


def test_a_newer_daemons_fields_are_passed_over(tmp_path: Path) -> None:
    folder, record = _made(Records(tmp_path))
    path = folder.path / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "later": 1, "format": FORMAT}))
    assert folder.read() == record


@pytest.mark.parametrize("text", ["", "{}", '{"boot": "b"}', '{"boot":"b","monitor":[1],"init":[1,2],"netns":3}'])
def test_a_broken_runtime_is_none(tmp_path: Path, text: str) -> None:
    folder, _ = _made(Records(tmp_path))
    (folder.path / "runtime.json").write_text(text)
    assert folder.read_runtime() is None


def test_runtime_and_activity(tmp_path: Path) -> None:
    folder, _ = _made(Records(tmp_path))
    assert folder.touched() is None
    folder.touch(1234.5)
    assert folder.touched() == 1234.5
    runtime = Runtime("boot", (1, 2), (3, 4), 5, paused_at=9.0)
    folder.write_runtime(runtime)
    assert folder.read_runtime() == runtime
    folder.write_runtime(None)
    assert folder.read_runtime() is None


def test_what_a_guest_left_is_removed_whatever_its_modes(tmp_path: Path) -> None:
    records = Records(tmp_path)
    folder, _ = _made(records)
    deep = folder.disk / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "f").write_text("x")
    (folder.disk / "out").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").write_text("x")
    os.mkfifo(folder.disk / "pipe")
    deep.chmod(0)
    (folder.disk / "a").chmod(0o500)
    records.discard(folder)
    assert not folder.path.exists()
    records.empty_trash()
    assert list(records.trash.iterdir()) == []
    assert (tmp_path / "kept").exists()
