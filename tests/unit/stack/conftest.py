"""What the tests of stack files share: a project to read in, and another user's eyes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

NOBODY = 65534


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with what a ``from:`` may name, and what it may not."""
    root = tmp_path / "project"
    (root / "stacks").mkdir(parents=True)
    (root / "folder").mkdir()
    (root / "folder" / "data.bin").write_bytes(bytes(range(256)))
    (root / "notes.txt").write_text("notes\n")
    for name in (".git", ".GIT"):
        (root / name).mkdir()
        (root / name / "config").write_text("[core]\n")
    (root / "state").mkdir()
    (root / "state" / "demo.json").write_text("{}")
    (root / "large.bin").write_bytes(b"x" * (1024 * 1024 + 1))
    (root / "link-out").symlink_to("/etc/passwd")
    (root / "folder-out").symlink_to("/etc")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture
def as_nobody(tmp_path: Path) -> Callable[[Callable[[], str]], str]:
    """Run a function as a user without rights, in a child process, and give the text that it returns.

    Only root can become another; any other user has no more rights than are needed to be refused.
    """

    def run(function: Callable[[], str]) -> str:
        function()
        for folder in (tmp_path, *tmp_path.parents):
            if folder != Path("/"):
                folder.chmod(folder.stat().st_mode | 0o055)
            if folder == Path("/tmp"):
                break
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(NOBODY)
                    os.setuid(NOBODY)
                os.write(writer, function().encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            said = answer.read()
        os.waitpid(child, 0)
        return said

    return run
