"""One test for each file of tests/cases/stack/bad: the findings are exactly those beside it, and show no secret.

A case is a stack file and a text with what is said about it. ``make golden`` writes the texts anew; they are then
read before they are kept. Every secret in a case holds the word *canary*.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpiac.model.diagnostic import Diagnostic
from mcpiac.stack.load import Reading, read_stack
from mcpiac.ui import diagnostics as ui

CASES = Path(__file__).parents[2] / "cases" / "stack" / "bad"
NAMES = sorted(path.stem for path in CASES.glob("*.yaml"))


def said(reading: Reading) -> str:
    """The findings, one after the other, in a form that no layout of the screen can change."""
    return "\n".join(_one(found) for found in reading.diagnostics)


def _one(found: Diagnostic) -> str:
    assert found.origin is not None
    lines = [f"{found.origin.line}:{found.origin.column} {found.severity}[{found.code}] {found.summary}"]
    if found.excerpt is not None:
        column = (found.excerpt.caret or found.origin.column) - 1
        lines += [f"  | {found.excerpt.text}", f"  | {' ' * column}{'^' * found.excerpt.width}"]
    lines += [f"  = {line}" for line in found.detail.splitlines()]
    lines += [f"  > {found.hint}"] if found.hint else []
    return "\n".join(lines) + "\n"


def read_case(folder: Path, name: str, root: Path) -> Reading:
    path = root / "stacks" / f"{name}.yaml"
    path.write_bytes((folder / f"{name}.yaml").read_bytes())
    return read_stack(path, root)


@pytest.mark.parametrize("name", NAMES)
def test_bad_input(name: str, project: Path) -> None:
    reading = read_case(CASES, name, project)
    shown = said(reading)
    expected = CASES / f"{name}.txt"
    if os.environ.get("MCPIAC_GOLDEN") == "write":
        expected.write_text(shown, encoding="utf-8")
    assert shown == expected.read_text(encoding="utf-8")
    assert reading.stack is None
    assert all(found.origin and found.origin.file == f"stacks/{name}.yaml" for found in reading.diagnostics)
    everything = (shown + repr(reading) + ui.render(reading.diagnostics)).lower()
    assert "canary" not in everything.replace("secret.canary", "")


@pytest.mark.parametrize("name", NAMES)
def test_findings_are_well_formed(name: str, project: Path) -> None:
    """A finding has a summary of one line that begins like a sentence's middle and does not end in a stop."""
    reading = read_case(CASES, name, project)
    assert any(found.severity == "error" for found in reading.diagnostics)
    for found in reading.diagnostics:
        assert "\n" not in found.summary
        assert not found.summary.endswith(".")
        assert found.origin is not None
        assert found.origin.line >= 1
        assert found.origin.column >= 1


def test_there_are_as_many_cases_as_were_promised() -> None:
    assert len(NAMES) >= 70
    assert {path.stem for path in CASES.glob("*.txt")} == set(NAMES)


class TestFiles:
    """Files that are wrong before they are read."""

    def one(self, path: Path, root: Path) -> Diagnostic:
        reading = read_stack(path, root)
        assert reading.stack is None
        (found,) = reading.diagnostics
        assert found.severity == "error"
        assert found.hint
        return found

    def test_missing(self, tmp_path: Path) -> None:
        found = self.one(tmp_path / "stacks" / "none.yaml", tmp_path)
        assert (found.code, str(found.origin)) == ("file-not-found", "stacks/none.yaml")

    def test_folder(self, tmp_path: Path) -> None:
        found = self.one(tmp_path, tmp_path)
        assert (found.code, found.summary) == ("not-a-file", "this is a folder, not a stack file")

    def test_fifo_is_refused_without_waiting(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.yaml")
        assert self.one(tmp_path / "pipe.yaml", tmp_path).summary == "this is a pipe, not a stack file"

    def test_socket(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("s.yaml")
            assert self.one(tmp_path / "s.yaml", tmp_path).code == "not-a-file"

    def test_device(self, tmp_path: Path) -> None:
        assert self.one(Path("/dev/null"), tmp_path).summary == "this is a device, not a stack file"

    def test_too_large(self, tmp_path: Path) -> None:
        (tmp_path / "big.yaml").write_bytes(b"# " + b"x" * 6_000_000)
        assert self.one(tmp_path / "big.yaml", tmp_path).code == "file-too-large"

    def test_just_not_too_large(self, tmp_path: Path) -> None:
        text = b"stack: demo\nprovider: local\n# "
        (tmp_path / "big.yaml").write_bytes(text + b"x" * (5_000_000 - len(text)))
        assert read_stack(tmp_path / "big.yaml", tmp_path).stack is not None

    def test_symlink_loop(self, tmp_path: Path) -> None:
        (tmp_path / "loop.yaml").symlink_to("loop.yaml")
        reading = read_stack(tmp_path / "loop.yaml", tmp_path)
        assert [d.code for d in reading.diagnostics] == ["not-readable"]

    def test_a_symlink_to_a_file_that_is_no_stack_shows_nothing_of_it(self, tmp_path: Path) -> None:
        (tmp_path / "credentials").write_text("[default]\naws_secret_access_key = canary-in-another-file\n")
        (tmp_path / "link.yaml").symlink_to("credentials")
        reading = read_stack(tmp_path / "link.yaml", tmp_path)
        assert "canary" not in repr(reading)
        assert all(d.excerpt is None for d in reading.diagnostics)

    def test_no_permission(self, project: Path, as_nobody: Callable[[Callable[[], str]], str]) -> None:
        path = project / "stacks" / "closed.yaml"
        path.write_text("stack: demo\nprovider: local\n")
        path.chmod(0o000)
        said = as_nobody(lambda: repr([(d.code, d.summary) for d in read_stack(path, project).diagnostics]))
        assert said == "[('not-readable', 'no permission to read this file')]"

    def test_no_permission_for_a_declared_file(
        self, project: Path, as_nobody: Callable[[Callable[[], str]], str]
    ) -> None:
        (project / "notes.txt").chmod(0o000)
        path = project / "stacks" / "demo.yaml"
        path.write_text(
            "stack: demo\nprovider: local\nservers:\n"
            "  a: {command: [x], files: {/tmp/a: {from: notes.txt}}}\n  b: {command: []}\n"
        )
        said = as_nobody(lambda: repr([d.code for d in read_stack(path, project).diagnostics]))
        assert said == "['from-unreadable', 'empty-list']"
