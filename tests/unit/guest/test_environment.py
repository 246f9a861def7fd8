"""Environment files: what is written is read back alike by us, by a shell and (same rules) by systemd."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpiac.guest.program.environment import main, parse, render

VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80)
NASTY = 'it\'s "x" $HOME `id` \\ \\n %h\n# no comment\n=;'


@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), VALUES))
@example({"A": NASTY, "B": "", "C": " x ", "D": "\\\n"})
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    assert parse(render(values)) == values


@settings(max_examples=15, deadline=None)
@given(VALUES)
@example(NASTY)
def test_a_shell_reads_the_same(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    file = tmp_path_factory.mktemp("env") / "env"
    file.write_bytes(render({"MCP_VALUE": value}).encode())
    script = (
        f"set -a; . {file}; exec {sys.executable} -c 'import os,json;print(json.dumps(os.environ[\"MCP_VALUE\"]))'"
    )
    said = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout
    assert json.loads(said) == value


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("A=1\nB=two words\n", {"A": "1", "B": "two words"}),
        ("# A=1\n; B=2\n\nno line\nC=3", {"C": "3"}),
        ("A='it\\s $HOME'\n", {"A": "it\\s $HOME"}),
        ('A="a\\"b\\$c\\\\d\\n"\n', {"A": 'a"b$c\\d\\n'}),
        ('A="two\nlines"\nB=1\n', {"A": "two\nlines", "B": "1"}),
        ("A=x\\\ny\n", {"A": "xy"}),
        ("A=  padded  \n", {"A": "padded"}),
        ("export A=1\n", {"A": "1"}),
        ("1A=x\nB=\n", {"B": ""}),
        ("A=a'b c'd\n", {"A": "ab cd"}),
    ],
)
def test_as_systemd_reads_it(text: str, values: dict[str, str]) -> None:
    assert parse(text) == values


def test_only_the_asked_names_are_handed_on(tmp_path: Path) -> None:
    source, target = tmp_path / "all", tmp_path / "run" / "one.env"
    source.write_text(render({"MINE": NASTY, "SANDBOXER_TOKEN": "never"}))
    assert main([str(source), str(target), "MINE"]) == 0
    assert parse(target.read_text()) == {"MINE": NASTY}
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_missing_name_is_told_without_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "all"
    source.write_text(render({"OTHER": "secret-value"}))
    assert main([str(source), str(tmp_path / "out"), "MINE"]) == 1
    said = capsys.readouterr().err
    assert "lacks MINE" in said
    assert "secret-value" not in said
