"""Files of a guest opened from the host: a trap in the guest's folder opens nothing and hangs nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcpiac.local.guestfiles import open_regular


def _read(disk: Path, path: str) -> bytes:
    fd = open_regular(disk, path)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("of the host")
    made = tmp_path / "disk"
    (made / "log").mkdir(parents=True)
    (made / "log" / "a.log").write_text("fine")
    return made


def test_a_regular_file(disk: Path) -> None:
    assert _read(disk, "log/a.log") == b"fine"


def test_absolute_paths_and_dots_stay_inside(disk: Path) -> None:
    assert _read(disk, "/log/a.log") == b"fine"
    assert _read(disk, "../../log/a.log") == b"fine"
    for path in ("../secret", "/etc/passwd"):
        with pytest.raises(OSError):
            open_regular(disk, path)


def _link(disk: Path) -> None:
    (disk / "log" / "x").symlink_to("../../secret")


def _inner_link(disk: Path) -> None:
    (disk / "log" / "x").symlink_to("a.log")


def _folder_link(disk: Path) -> None:
    os.rename(disk / "log", disk / "was")
    (disk / "log").symlink_to("/etc")
    (disk / "was" / "x").touch()


def _fifo(disk: Path) -> None:
    os.mkfifo(disk / "log" / "x")


def _folder(disk: Path) -> None:
    (disk / "log" / "x").mkdir()


def _socket(disk: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(disk / "log" / "x"))


def _magic(disk: Path) -> None:
    (disk / "log" / "x").symlink_to("/proc/self/environ")


def _none(disk: Path) -> None:
    return


@pytest.mark.parametrize("trap", [_link, _inner_link, _folder_link, _fifo, _folder, _socket, _magic, _none])
def test_traps(disk: Path, trap: object) -> None:
    assert callable(trap)
    trap(disk)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError):
        open_regular(disk, "log/x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_disk_that_is_a_link_is_refused(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(disk)
    with pytest.raises(OSError):
        open_regular(tmp_path / "other", "log/a.log")
