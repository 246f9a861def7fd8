"""Declared files: written when their declaration changed, left alone when the server edited them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from mcpiac.guest.program.fault import Failed
from mcpiac.guest.program.files import put, read, sha256


def declared(path: Path, content: str, *, write: bool = True, recorded: str | None = None, mode: str = "0644") -> Any:
    data = content.encode()
    return {
        "path": str(path),
        "mode": mode,
        "sha256": sha256(data),
        "content": base64.b64encode(data).decode(),
        "write": write,
        "recorded": None if recorded is None else sha256(recorded.encode()),
    }


def run(files: list[Any], remove: dict[str, str | None] | None = None, **rest: Any) -> dict[str, Any]:
    return put(files, remove or {}, **{"written": {}, "overwrite": False, "secrets": {"S": "v"}, **rest})


def test_a_first_file_is_written_with_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "run.sh"
    done = run([declared(file, "x", mode="0755")])
    assert file.read_text() == "x"
    assert file.stat().st_mode & 0o777 == 0o755
    assert done["changed"] == [str(file)]
    assert run([declared(file, "x", mode="0755")])["changed"] == []


def test_a_changed_declaration_replaces_what_was_recorded(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("old")
    run([declared(file, "new", recorded="old")])
    assert file.read_text() == "new"


def test_what_an_unfinished_run_wrote_is_ours(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("half")
    run([declared(file, "new", recorded="old")], written={str(file): sha256(b"half")})
    assert file.read_text() == "new"


def test_an_edited_file_stops_everything_before_a_byte_is_written(tmp_path: Path) -> None:
    first, edited = tmp_path / "a", tmp_path / "b"
    edited.write_text("mine")
    with pytest.raises(Failed) as told:
        run([declared(first, "1"), declared(edited, "new", recorded="old")])
    assert told.value.told["code"] == "file-edited"
    assert not first.exists()
    run([declared(first, "1"), declared(edited, "new", recorded="old")], overwrite=True)
    assert edited.read_text() == "new"


def test_a_file_that_is_not_due_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("edited")
    assert run([declared(file, "declared", write=False)])["changed"] == []
    assert file.read_text() == "edited"


def test_a_secret_file_follows_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    spec = {"path": str(file), "mode": "0600", "secret": "S", "write": True, "recorded": None}
    assert run([spec])["written"] == {str(file): "secret"}
    assert file.read_text() == "v"
    run([spec], secrets={"S": "w"})
    assert file.read_text() == "w"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_removed_declaration_takes_its_file_along_unless_edited(tmp_path: Path) -> None:
    ours, edited = tmp_path / "a", tmp_path / "b"
    ours.write_text("ours")
    edited.write_text("edited")
    done = run([], {str(ours): sha256(b"ours"), str(edited): sha256(b"ours")})
    assert not ours.exists()
    assert edited.exists()
    assert done["kept"] == [str(edited)]


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("keep")
    link.symlink_to(target)
    assert read(str(link)) is None
    run([declared(link, "new")])
    assert target.read_text() == "keep"
    assert not link.is_symlink()


def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(Failed, match="cannot write"):
        run([declared(tmp_path / "a", "x")])
