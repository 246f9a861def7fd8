"""A crash at every boundary of writing: afterwards the state loads, and is the one before or the one after."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.state.test_store import apply
from tests.unit.state.values import LINEAGE

from mcpiac.model.diagnostic import Diagnosed
from mcpiac.state.disk import Appender, Disk
from mcpiac.state.store import Store


class Crash(BaseException):
    """The process is gone."""


class Faulty(Disk):
    """Fails or crashes at its ``at``-th operation that changes something, half-way through it where that can be."""

    def __init__(self, at: int, fail: Callable[[], BaseException]) -> None:
        self.at = at
        self.fail = fail
        self.count = 0

    def _due(self) -> bool:
        self.count += 1
        return self.count == self.at

    def create(self, path: Path, data: bytes) -> None:
        if self._due():
            path.write_bytes(data[: len(data) // 2])
            raise self.fail()
        super().create(path, data)
        if self._due():
            raise self.fail()

    def rename(self, old: Path, new: Path) -> None:
        if self._due():
            raise self.fail()
        super().rename(old, new)
        if self._due():
            raise self.fail()

    def remove(self, path: Path) -> None:
        if self._due():
            raise self.fail()
        super().remove(path)

    def sync_folder(self, folder: Path) -> None:
        if self._due():
            raise self.fail()
        super().sync_folder(folder)

    def appender(self, path: Path) -> Appender:
        inner, disk = super().appender(path), self

        class Half(Appender):
            def __init__(self) -> None: ...

            def append(self, data: bytes) -> None:
                if disk._due():
                    with path.open("ab") as file:
                        file.write(data[: len(data) // 2])
                    raise disk.fail()
                inner.append(data)

            def close(self) -> None:
                inner.close()

        return Half()


def sweep(tmp_path: Path, fail: Callable[[], BaseException]) -> int:
    """Run once with a fault at each operation until a run has none; the number of runs."""
    for at in range(1, 200):
        folder = tmp_path / f"{at}" / "state"
        calm = Store(folder)
        with calm.lock("demo", "apply", lineage=LINEAGE) as session:
            asyncio.run(apply(session.journal, "a"))
        disk = Faulty(at, fail)
        ended = False
        try:
            with Store(folder, disk=disk).lock("demo", "apply") as session:
                asyncio.run(apply(session.journal, "b"))
                ended = True
        except (Crash, Diagnosed):
            pass
        seen = calm.read("demo")
        assert seen is not None
        assert "a" in seen.servers, at
        if ended:
            assert "b" in seen.servers, f"fault {at}: a line was durable and is lost"
        with calm.lock("demo", "apply") as session:
            again = {entry.action.server for entry in session.state.open}
            assert ("b" in session.state.servers) == ("b" in seen.servers)
            assert not ("b" in session.state.servers and "b" in again)
            asyncio.run(apply(session.journal, "c"))
        after = calm.read("demo")
        assert after is not None
        assert {"a", "c"} <= set(after.servers)
        assert not (folder / "demo.journal").exists()
        if disk.count < at:
            return at
    raise AssertionError("the sweep never ended")


def test_a_crash_at_any_write_loses_nothing(tmp_path: Path) -> None:
    assert sweep(tmp_path, Crash) > 10


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failure_at_any_write_loses_nothing(tmp_path: Path, number: int) -> None:
    assert sweep(tmp_path, lambda: OSError(number, "no")) > 10
