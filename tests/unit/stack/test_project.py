"""The project folder, its stacks by file and by name, and mcpiac.yaml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpiac.model.diagnostic import Diagnosed, Diagnostic
from mcpiac.stack.project import Project, find, stack_name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "stacks").mkdir()
    for file, name in (("one.yaml", "one"), ("second.yml", "two"), ("three.lock.yaml", "lock")):
        (tmp_path / "stacks" / file).write_text(f"provider: local\nservers: {{}}\nstack: {name}\n")
    (tmp_path / "stacks" / "notes.txt").write_text("stack: no")
    (tmp_path / "stacks" / ".hidden.yaml").write_text("stack: hidden")
    return tmp_path


def refused(call: Callable[[], object]) -> tuple[Diagnostic, ...]:
    with pytest.raises(Diagnosed) as caught:
        call()
    return caught.value.diagnostics


def test_the_nearest_folder_with_stacks_is_the_project(root: Path) -> None:
    below = root / "a" / "b"
    below.mkdir(parents=True)
    assert find(below, None).root == root
    (root / "a" / "mcpiac.yaml").write_text("")
    assert find(below, None).root == root / "a"


def test_chosen_folder(root: Path) -> None:
    assert find(Path("/"), root).root == root
    assert find(root.parent, Path(root.name)).root == root
    (found,) = refused(lambda: find(root, Path("nowhere")))
    assert found.code == "no-project"


def test_no_project(tmp_path: Path) -> None:
    (found,) = refused(lambda: find(tmp_path, None))
    assert found.code == "no-project"
    assert "mcpiac init" in found.hint


def test_stack_files_without_lock_files(root: Path) -> None:
    assert [p.name for p in Project(root).stack_files()] == ["one.yaml", "second.yml"]
    assert Project(root / "stacks").stack_files() == []


def test_select_by_name_by_file_and_all(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(root)
    one, two = root / "stacks" / "one.yaml", root / "stacks" / "second.yml"
    assert project.select([]) == [one, two]
    assert project.select(["two"]) == [two]
    assert project.select(["two", "one", "two"]) == [two, one]
    assert project.select([str(one)]) == [one]
    assert project.select(["stacks/second.yml"]) == [two]
    monkeypatch.chdir(root / "stacks")
    assert project.select(["one.yaml"]) == [Path("one.yaml")]
    assert project.select(["./missing.yaml"]) == [Path("./missing.yaml")]


def test_unknown_names_are_all_said_with_the_nearest(root: Path) -> None:
    found = refused(lambda: Project(root).select(["tow", "zzz"]))
    assert [(d.code, d.hint) for d in found] == [
        ("unknown-stack", "did you mean `two`?"),
        ("unknown-stack", "there is: one, two"),
    ]


def test_no_stack_at_all(tmp_path: Path) -> None:
    (found,) = refused(lambda: Project(tmp_path).select([]))
    assert (found.code, found.hint) == ("no-stacks", "`mcpiac init` writes a first one")


def test_two_files_of_one_name(root: Path) -> None:
    (root / "stacks" / "other.yaml").write_text("stack: one\n")
    for names in ([], ["one"]):
        (found,) = refused(lambda names=names: Project(root).select(names))  # type: ignore[misc]
        assert found.code == "stack-twice"
        assert str(found.origin) == "stacks/other.yaml"
        assert "stacks/one.yaml" in found.summary
    assert Project(root).select(["two"]) == [root / "stacks" / "second.yml"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"stack: demo\nb: 1\n\tbroken", "demo"),
        (b"\xef\xbb\xbfstack: demo", "demo"),
        (b"[x]: y\nstack: demo\nmore: [", "demo"),
        (b"a: {stack: no}\n", None),
        (b"stack: {a: b}\n", None),
        (b"", None),
        (b"- stack\n", None),
        (b"\tstack: demo", None),
        (b"stack: \xff", None),
        (b"{stack: a}", "a"),
    ],
)
def test_the_name_in_a_file(text: bytes, name: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(text)
    assert stack_name(tmp_path / "a.yaml") == name


@pytest.mark.parametrize("text", ["", "# nothing\n", "policy:\n", "policy: {}\ndisplay: null\n"])
def test_mcpiac_yaml_without_content(text: str, root: Path) -> None:
    (root / "mcpiac.yaml").write_text(text)
    assert find(root, None).policy == {}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("provider: {url: https://canary.example}\n", ["address-in-project"]),
        ("backend: s3://canary\n", ["address-in-project"]),
        ("api_key: canary\nsecret-store: canary\n", ["address-in-project", "address-in-project"]),
        ("state: {}\n", ["unknown-key"]),
        ("colour: always\n", ["unknown-key"]),
        ("policy: {deny: [canary]}\n", ["later-version"]),
        ("- canary\n", ["not-a-mapping"]),
        ("policy: {}\npolicy: {}\n", ["duplicate-key"]),
        ("\tx: canary\n", ["tab-indent"]),
    ],
)
def test_mcpiac_yaml_holds_no_address_and_no_credential(text: str, codes: list[str], root: Path) -> None:
    (root / "mcpiac.yaml").write_text(text)
    found = refused(lambda: find(root, None))
    assert [d.code for d in found] == codes
    assert all(d.origin is not None and d.origin.file == "mcpiac.yaml" for d in found)
    assert "canary" not in repr(found)
