"""``fmt``: one layout, every comment, the same meaning; or the file stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpiac.model.diagnostic import Diagnosed
from mcpiac.stack import format as module
from mcpiac.stack.format import format_file, format_text

BEFORE = """\
# the top

stack:   demo   # the name
provider: local
servers:
    files:
        package: npm:a-server # a comment
        version: '1.10'
        args:
        - /home/user
          # about the next
        - "x:y"
        env: {A: env:B, URL: https://x/?y=1,
              C: d}
        files:
            /tmp/a:
                content: |
                   line
                     deeper # no comment
            # about b
            /tmp/b: {content: x}
    # about second
    second: {command: [a, b]}


# the end
"""
AFTER = """\
# the top

stack: demo     # the name
provider: local
servers:
  files:
    package: npm:a-server     # a comment
    version: '1.10'
    args:
      - /home/user
      # about the next
      - "x:y"
    env: {A: env:B, URL: https://x/?y=1, C: d}
    files:
      /tmp/a:
        content: |
          line
            deeper # no comment
      # about b
      /tmp/b: {content: x}
  # about second
  second: {command: [a, b]}


# the end
"""


def test_layout() -> None:
    assert format_text(BEFORE) == AFTER
    assert format_text(AFTER) == AFTER


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 1", "a: 1\n"),
        ("a: 1\r\nb: 2\r\n", "a: 1\nb: 2\n"),
        ("\ufeffa: 1\n\n\n", "a: 1\n"),
        ("", ""),
        ("# only a comment", "# only a comment\n"),
        ("a: &x {b: c}\nd: {<<: *x}\n", "a: &x {b: c}\nd: {<<: *x}\n"),
        ("a: 0o17\nb: 1.10\nc: NO\nd: '0644'\n", "a: 0o17\nb: 1.10\nc: NO\nd: '0644'\n"),
    ],
)
def test_small_things(before: str, after: str) -> None:
    assert format_text(before) == after


def test_a_long_line_is_not_folded() -> None:
    text = "a: [" + ", ".join(f"item-{n}" for n in range(100)) + "]\nb: " + "word " * 100 + "end\n"
    assert format_text(text) == text


@pytest.mark.parametrize("text", ["a: [", "a: 1\na: 2\n", "a: 1\n---\nb: 2\n", "a: !x y\n"])
def test_what_is_wrong_is_not_laid_out(text: str) -> None:
    with pytest.raises(Diagnosed):
        format_text(text)


def test_a_secret_in_a_broken_file_is_not_shown() -> None:
    with pytest.raises(Diagnosed) as caught:
        format_text("stack: demo\nsecrets: {TOKEN: canary\n")
    assert "canary" not in repr(caught.value.diagnostics)


@pytest.mark.parametrize("damage", ["a: 1\n", "a: 1 # kept\nb: 3\n", "a: 1 # other\nb: 2\n", "a: [\n"])
def test_a_layout_that_would_lose_something_is_refused(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_round_trip", lambda text: damage)
    with pytest.raises(Diagnosed) as caught:
        format_text("a: 1 # kept\nb: 2\n")
    assert [d.code for d in caught.value.diagnostics] == ["not-formatted"]


def test_a_question_mark_that_ruamel_misreads_is_left_alone() -> None:
    with pytest.raises(Diagnosed) as caught:
        format_text("a: [?x]\n")
    assert caught.value.diagnostics[0].code == "not-formatted"


def test_format_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa:   1\r\n")
    assert format_file(tmp_path / "a.yaml", tmp_path) == ("a:   1\r\n", "a: 1\n")
    with pytest.raises(Diagnosed):
        format_file(tmp_path, tmp_path)
