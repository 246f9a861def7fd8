"""Sources become values, or findings that say what to type; no value is ever in a finding."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcpiac.model.diagnostic import Diagnostic, Origin
from mcpiac.model.secret import Secret
from mcpiac.model.spec import SecretRef
from mcpiac.secrets.sources import LARGEST, resolve
from mcpiac.ui import diagnostics as ui


def one(
    source: str, root: Path = Path("/nonexistent"), environ: Mapping[str, str] | None = None
) -> tuple[str | None, list[Diagnostic]]:
    values, found = resolve({"TOKEN": SecretRef(source)}, root, environ or {})
    assert "canary" not in repr((values, found)) + ui.render(found)
    assert ("TOKEN" in values) != any(d.severity == "error" for d in found)
    return (values["TOKEN"].reveal() if "TOKEN" in values else None), found


def test_environment() -> None:
    assert one("env:MY_TOKEN", environ={"MY_TOKEN": "canary é"}) == ("canary é", [])


@pytest.mark.parametrize(
    ("environ", "code"),
    [({}, "secret-not-set"), ({"OTHER": "canary"}, "secret-not-set"), ({"MY_TOKEN": ""}, "secret-empty")],
)
def test_environment_without_it(environ: dict[str, str], code: str) -> None:
    value, (found,) = one("env:MY_TOKEN", environ=environ)
    assert value is None
    assert (found.code, found.hint) == (code, "export MY_TOKEN=…")
    assert found.summary.startswith("TOKEN: the environment variable MY_TOKEN is ")


def test_environment_with_what_is_no_text() -> None:
    for value in (os.fsdecode(b"canary\xff"), "canary" + "x" * LARGEST):
        assert one("env:A", environ={"A": value})[0] is None


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"canary", "canary"),
        (b"canary\n", "canary"),
        (b"canary\r\n", "canary"),
        (b"canary\n\n", "canary\n"),
        (b" canary \n", " canary "),
        (b"canary\nsecond line\n", "canary\nsecond line"),
        ("canary é\n".encode(), "canary é"),
        (b"canary" + b"x" * (LARGEST - 6), "canary" + "x" * (LARGEST - 6)),
    ],
)
def test_file(data: bytes, value: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(data)
    (tmp_path / "t").chmod(0o600)
    assert one("file:t", tmp_path) == (value, [])
    assert one(f"file:{tmp_path}/t", Path("/")) == (value, [])
    assert one("file:~/t", Path("/"), {"HOME": str(tmp_path)}) == (value, [])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "secret-empty"),
        (b"\n", "secret-empty"),
        (b"canary\xff", "secret-not-text"),
        (b"canary\x00", "secret-not-text"),
        (b"canary" * LARGEST, "secret-too-large"),
    ],
)
def test_file_with_what_is_no_secret(data: bytes, code: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(data)
    value, (found,) = one("file:t", tmp_path)
    assert (value, found.code) == (None, code)
    assert found.hint


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for source in ("file:pipe", "file:.", "file:/dev/null"):
        assert [d.code for d in one(source, tmp_path)[1]] == ["secret-file-kind"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (found,) = one("file:secrets/t", tmp_path)[1]
    assert found.code == "secret-file-missing"
    assert f"chmod 600 {tmp_path}/secrets/t" in found.hint


def test_a_loop_of_symlinks(tmp_path: Path) -> None:
    (tmp_path / "t").symlink_to("t")
    assert [d.code for d in one("file:t", tmp_path)[1]] == ["secret-file-unreadable"]


def test_a_file_that_others_can_read(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("canary")
    (tmp_path / "t").chmod(0o640)
    value, (found,) = one("file:t", tmp_path)
    assert value == "canary"
    assert (found.severity, found.code, found.hint) == ("warning", "secret-file-open", f"chmod 600 {tmp_path}/t")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_no_permission(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.write_text("canary")
    closed.chmod(0o000)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            _, found = resolve({"TOKEN": SecretRef("file:closed")}, tmp_path, {})
            os.write(writer, found[0].code.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert answer.read() == "secret-file-unreadable"
    os.waitpid(child, 0)


def test_all_findings_at_once_with_their_place() -> None:
    refs = {
        "A": SecretRef("env:A"),
        "B": SecretRef("env:B", 2),
        "C": SecretRef("env:C"),
        "D": SecretRef("cmd:canary"),
    }
    values, found = resolve(
        refs, Path("/"), {"B": "canary"}, address="demo/files", origin=lambda: Origin("stacks/demo.yaml", 7, 5)
    )
    assert values == {"B": Secret("canary")}
    assert [(d.code, d.address, str(d.origin)) for d in found] == [
        ("secret-not-set", "demo/files", "stacks/demo.yaml:7:5"),
        ("secret-not-set", "demo/files", "stacks/demo.yaml:7:5"),
        ("secret-source", "demo/files", "stacks/demo.yaml:7:5"),
    ]


def test_values_are_not_printed_or_pickled() -> None:
    values, _ = resolve({"A": SecretRef("env:A")}, Path("/"), {"A": "canary"})
    assert "canary" not in f"{values} {values['A']!s} {values['A']!r} {values['A']:>10}"
    with pytest.raises(TypeError):
        pickle.dumps(values)


class TestGit:
    """A file that git tracks is found in every layout of git's index."""

    def git(self, folder: Path, *args: str) -> None:
        settings = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", "-C", folder, *settings, *args], check=True, capture_output=True)

    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        tree = tmp_path / "tree"
        (tree / "project" / "deep").mkdir(parents=True)
        for name in ("a", "project/deep/tracked", "project/deep/tracked-too", "project/zzz", "project/é"):
            (tree / name).write_text("canary")
        self.git(tree, "init")
        self.git(tree, "add", ".")
        (tree / "project" / "deep" / "track").write_text("canary")
        for path in tree.rglob("*"):
            if path.is_file() and ".git" not in path.parts:
                path.chmod(0o600)
        return tree

    @pytest.mark.parametrize("version", ["2", "3", "4"])
    def test_index_versions(self, version: str, tree: Path) -> None:
        if version == "3":
            (tree / "project" / "later").write_text("canary")
            self.git(tree, "add", "--intent-to-add", "project/later")
        else:
            self.git(tree, "update-index", f"--index-version={version}")
        assert (tree / ".git" / "index").read_bytes()[4:8] == int(version).to_bytes(4, "big")
        root = tree / "project"
        for name, tracked in (("deep/tracked", True), ("deep/tracked-too", True), ("deep/track", False), ("é", True)):
            codes = [d.code for d in one(f"file:{name}", root)[1]]
            assert codes == (["secret-file-tracked"] if tracked else []), name

    def test_through_a_symlink(self, tree: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tree / "project" / "zzz")
        (found,) = one("file:link", tmp_path)[1]
        assert (found.severity, found.code) == ("warning", "secret-file-tracked")
        assert "git rm --cached" in found.hint

    def test_a_linked_work_tree(self, tree: Path, tmp_path: Path) -> None:
        self.git(tree, "commit", "-m", "x")
        self.git(tree, "worktree", "add", str(tmp_path / "linked"))
        (tmp_path / "linked" / "a").chmod(0o600)
        assert [d.code for d in one("file:a", tmp_path / "linked")[1]] == ["secret-file-tracked"]

    @pytest.mark.parametrize(
        "index", [b"", b"DIRC", b"DIRC\x00\x00\x00\x02\xff\xff\xff\xff" + b"x" * 200, b"junk" * 50]
    )
    def test_a_damaged_index_warns_of_nothing(self, index: bytes, tree: Path) -> None:
        (tree / ".git" / "index").write_bytes(index)
        assert one("file:a", tree) == ("canary", [])

    def test_without_an_index(self, tree: Path) -> None:
        (tree / ".git" / "index").unlink()
        assert one("file:a", tree) == ("canary", [])


def test_where_a_secret_is_declared_is_asked_only_to_say_what_is_wrong() -> None:
    asked: list[str] = []
    refs = {"A": SecretRef("env:A")}
    resolve(refs, Path("/"), {"A": "value"}, origin=lambda: asked.append("fine"))
    assert asked == []
    resolve(refs, Path("/"), {}, origin=lambda: asked.append("unset"))
    assert asked == ["unset"]
