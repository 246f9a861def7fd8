"""Logs: what the agent writes is what the daemon reads, bounded on both sides."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mcpiac.local import logs
from mcpiac.local.agent import log as agent_log
from mcpiac.local.agent.log import LAST_LINES, MAX_BYTES, MAX_LINE, Log


def _log(disk: Path, name: str = "s") -> Log:
    return Log(str(disk / logs.FOLDER / f"{name}.log"))


def _texts(disk: Path, tail: int = 100) -> list[str]:
    return [item.text for item in logs.tail(disk, "s", tail)]


def test_written_and_read(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.say("started, pid 7")
    log.write("stdout", b"one\ntw")
    log.write("stderr", b"oops\r\n")
    log.write("stdout", b"o\n\nlast")
    log.close()
    found = logs.tail(tmp_path, "s", 100)
    assert [(item.stream, item.text) for item in found] == [
        ("system", "started, pid 7"),
        ("stdout", "one"),
        ("stderr", "oops"),
        ("stdout", "two"),
        ("stdout", ""),
        ("stdout", "last"),
    ]
    assert all(len(item.at) == 24 and item.at.endswith("Z") for item in found)
    assert _texts(tmp_path, 2) == ["", "last"]
    assert _texts(tmp_path, 0) == []


def test_no_log(tmp_path: Path) -> None:
    assert logs.tail(tmp_path, "s", 10) == []


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.write("stdout", b"x" * (MAX_LINE * 2 + 5))
    log.close()
    assert [len(text) for text in _texts(tmp_path)] == [MAX_LINE, MAX_LINE, 5]


def test_it_is_bounded(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for number in range(4000):
        log.write("stdout", f"{number} {'y' * 1000}\n".encode())
    log.close()
    sizes = {path.name: path.stat().st_size for path in (tmp_path / logs.FOLDER).iterdir()}
    assert set(sizes) == {"s.log", "s.log.1"}
    assert all(size <= MAX_BYTES for size in sizes.values())
    assert [text.split()[0] for text in _texts(tmp_path, 1500)] == [str(n) for n in range(2500, 4000)]
    assert len(log.last) == LAST_LINES


def test_a_full_disk_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / ".mcpiac").write_text("a file where a folder should be")
    log = _log(tmp_path)
    log.write("stdout", b"lost\n")
    assert list(log.last) == ["lost"]


@pytest.mark.parametrize(
    "line", [b"", b"x", b"2026-11-30T06:12:00.123Z", b"2026-11-30T06:12:00.123Z other text", b"\xff\x00 stdout z"]
)
def test_what_a_guest_writes_into_its_log_itself_is_text(line: bytes) -> None:
    item = logs.parse(line)
    assert item.at == ""
    assert item.stream == "stdout"
    assert item.text == line.decode("utf-8", "replace")


async def _collect(disk: Path, wanted: int, act: object) -> list[str]:
    found: list[str] = []
    assert callable(act)
    async with asyncio.timeout(20):
        async for item in logs.follow(disk, "s", 10):
            found.append(item.text)
            act(found)
            if len(found) >= wanted:
                break
    return found


def test_follow_goes_on_after_the_file_was_put_aside(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.write("stdout", b"before\n")
    filler = b"z" * 4000 + b"\n"

    def act(found: list[str]) -> None:
        if found == ["before"]:
            for _ in range(MAX_BYTES // len(filler) + 20):
                log.write("stdout", filler)
            log.write("stdout", b"after\n")

    lines = MAX_BYTES // len(filler) + 20
    found = asyncio.run(_collect(tmp_path, lines + 2, act))
    assert found[0] == "before"
    assert found[-1] == "after"
    assert found.count("z" * 4000) == lines


def test_follow_waits_for_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    async def main() -> list[str]:
        task = asyncio.create_task(_collect(tmp_path, 1, lambda _found: None))
        await asyncio.sleep(0)
        log = _log(tmp_path)
        log.write("stdout", b"hello\n")
        return await task

    assert asyncio.run(main()) == ["hello"]


def test_the_stamp_is_utc_with_milliseconds() -> None:
    assert agent_log.stamp(1796019120.1236) == "2026-11-30T06:12:00.123Z"
