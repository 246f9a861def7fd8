"""Files made to be large: everything ends soon, and says why; and the speed that a fleet of 1,000 servers needs."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mcpiac.model.diagnostic import Diagnostic
from mcpiac.stack.load import read, read_stack

SERVER = """\
  server-{n}:
    package: npm:@modelcontextprotocol/server-filesystem
    version: 2026.8.31
    args: [/home/user/project, --flag]
    files:
      /home/user/project/notes.txt: {{content: "hello {n}\\n"}}
    secrets:
      FILES_SERVER_TOKEN: env:FILES_SERVER_TOKEN_{n}
    env: {{LOG_LEVEL: info}}
    ttl: 8h
    labels: {{team: t{n}}}
    title: Files {n}
"""
HEAD = "stack: big\nprovider: local\ndefaults: {size: small, idle: 15}\nservers:\n"


def fleet(servers: int) -> str:
    return HEAD + "".join(SERVER.format(n=n) for n in range(servers))


def findings(text: str) -> tuple[Diagnostic, ...]:
    before = time.process_time()
    found = read(text, "stack.yaml", Path("/nonexistent")).diagnostics
    assert time.process_time() - before < 20
    return found


def test_a_thousand_servers_are_read_in_time(tmp_path: Path) -> None:
    """0.35 s of the 1.2 s that a no-op plan has; processor time, since other tests run beside this one."""
    path = tmp_path / "big.yaml"
    path.write_text(fleet(1000))
    taken = []
    for _ in range(7):
        before = time.process_time()
        stack = read_stack(path, tmp_path).stack
        taken.append(time.process_time() - before)
        assert stack is not None
        assert len(stack.servers) == 1000
    assert min(taken) <= 0.35


def test_the_start_costs_little(tmp_path: Path) -> None:
    """Reading ten servers in a fresh interpreter, imports and all: most of what ``validate`` does in 0.25 s."""
    path = tmp_path / "ten.yaml"
    path.write_text(fleet(10))
    program = (
        "import sys; from pathlib import Path; from mcpiac.stack.load import read_stack;"
        "assert read_stack(Path(sys.argv[1]), Path('/')).stack;"
        "assert not {'pydantic', 'packaging', 'difflib', 'httpx'} & set(sys.modules)"
    )
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(taken) <= 0.25


def test_more_findings_than_anybody_reads() -> None:
    found = findings(
        "stack: demo\nprovider: local\nservers:\n" + "".join(f"  a{n}: {{idel: 5}}\n" for n in range(5000))
    )
    assert len(found) == 201
    assert found[-1].code == "more-errors"
    assert "or more" in found[-1].summary
    few = findings("stack: demo\nprovider: local\nservers:\n" + "".join(f"  a{n}: {{}}\n" for n in range(203)))
    assert few[-1].summary == "and 3 further findings"


def test_defaults_that_multiply() -> None:
    defaults = ", ".join(f"V{n}: x" for n in range(5000))
    servers = "".join(f"  a{n}: {{command: [x], env: {{A: b}}}}\n" for n in range(2000))
    found = findings(f"stack: demo\nprovider: local\ndefaults: {{env: {{{defaults}}}}}\nservers:\n{servers}")
    assert [d.code for d in found] == ["defaults-too-large"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" * 4_000_000, "too-deep"),
        ("{a: " * 1_000_000, "too-deep"),
        ("- " * 2_000_000, "too-deep"),
        ("? " * 1_000_000, "too-deep"),
        ("a: " + "x" * 4_900_000, "not-a-stack"),
        ("stack: demo\nprovider: local\nservers: {" + "a" * 4_900_000 + ": {}}\n", "yaml-syntax"),
        ('stack: "' + "\\n" * 500_000 + '"\nprovider: local\n', "bad-name"),
        ("stack: demo\nprovider: local\nservers:\n" + "#\n" * 2_000_000 + "  a: {command: []}\n", "empty-list"),
        ("stack: demo\nprovider: local\nservers:\n  a: {command: [" + "x, " * 100_000 + "5]}\n", "not-text"),
        (
            "stack: demo\nprovider: local\nservers:\n  a: {command: [x], args: ['" + "${" * 200_000 + "']}\n",
            "bad-reference",
        ),
        (
            "stack: demo\nprovider: local\nservers:\n  a: {command: [x], env: {A: '"
            + "aB3" * 1_000_000
            + "'}, idel: 1}\n",
            "unknown-key",
        ),
    ],
    ids=[
        "brackets",
        "braces",
        "dashes",
        "questions",
        "text",
        "key",
        "escapes",
        "comments",
        "items",
        "references",
        "value",
    ],
)
def test_files_made_to_be_slow(text: str, code: str) -> None:
    assert code in [d.code for d in findings(text)]


def test_a_diagnostic_is_short_however_long_the_line_is() -> None:
    for found in findings(
        "stack: demo\nprovider: local\nservers:\n  a: {command: [x], args: [" + "y, " * 100_000 + "5]}\n"
    ):
        assert found.excerpt is not None
        assert len(found.excerpt.text) <= 102
        assert len(found.summary) < 200
