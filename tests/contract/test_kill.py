"""The installed command is killed for real, again and again, in the middle of an apply: the state loads, nothing is
lost or doubled, the next apply converges. The service is the contract server in a process of its own."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contract.conftest import short_home
from tests.contract.server_process import ContractServer

from mcpiac.model.record import State
from mcpiac.state.store import Store


class Fleet:
    """A project with this many servers, and a service for it."""

    def __init__(self, folder: Path, home: Path, server: ContractServer, count: int) -> None:
        self.folder = folder
        self.home = home
        self.server = server
        self.count = count
        (folder / "stacks").mkdir(parents=True)
        lines = [
            f"  s{n:02}: {{package: 'npm:server', version: 1.0.0, secrets: {{T: 'env:T'}}}}" for n in range(count)
        ]
        (folder / "stacks" / "demo.yaml").write_text("stack: demo\nprovider: local\nservers:\n" + "\n".join(lines))
        self.store = Store(folder / "state")

    def start(self, *words: str) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MCPIAC_")}
        return subprocess.Popen(
            [sys.executable, "-m", "mcpiac", *words],
            cwd=self.folder,
            env=kept | {"MCPIAC_HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config"), "T": "value"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == code, said
        return said

    def killed(self, when: Callable[[], bool]) -> bool:
        """An apply that is killed as soon as ``when`` says so; whether it was still running then."""
        process = self.start("apply", "-y", "demo")
        try:
            while process.poll() is None and not when():
                time.sleep(0.0005)
            process.send_signal(signal.SIGKILL)
        finally:
            process.communicate(timeout=60)
        return process.returncode == -signal.SIGKILL

    @property
    def state(self) -> State | None:
        return self.store.read("demo")

    def lines(self) -> int:
        try:
            return (self.folder / "state" / "demo.journal").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def owners(self) -> list[str]:
        """The markers of everything that is live."""
        with urllib.request.urlopen(f"{self.server.url}/api/v1/sandboxes?limit=100", timeout=30) as answer:
            return [box["owner"] for box in json.load(answer)["sandboxes"]]

    def holds(self) -> None:
        """Nothing is lost, nothing is there twice."""
        state = self.state
        known = {box.owner for box in state.sandboxes.values()} if state else set()
        if state is not None:
            known |= {entry.action.payload["owner"] for entry in state.open if entry.action.verb == "create"}
        owners = self.owners()
        assert set(owners) <= known, "a sandbox is in no record"
        assert len({owner.split("/")[1] for owner in owners}) == len(owners), "a server has two sandboxes"

    def converges(self) -> None:
        self.run("apply", "-y", "demo")
        self.run("plan", "--detailed-exitcode", "demo")
        assert len(self.owners()) == self.count
        self.holds()
        self.run("destroy", "-y", "demo")
        assert self.owners() == []


@pytest.fixture
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with short_home() as home, ContractServer(socket=home / "run" / "daemon.sock") as server:
        server.delay(20)
        yield Fleet(tmp_path / "project", home, server, getattr(request, "param", 5))


def sweep(fleet: Fleet, moments: list[Callable[[], bool]]) -> int:
    """One apply after another, each killed at its moment, without a destroy in between; how many were killed."""
    killed = 0
    for moment in moments:
        killed += fleet.killed(moment)
        fleet.holds()
        fleet.run("plan", "demo")
        fleet.run("destroy", "-y", "demo")
        assert fleet.owners() == [], "what a killed apply left can be destroyed"
    fleet.killed(moments[-1])
    fleet.converges()
    return killed


def at_line(fleet: Fleet, number: int) -> Callable[[], bool]:
    return lambda: fleet.lines() >= number


def after(seconds: float) -> Callable[[], bool]:
    began: list[float] = []

    def due() -> bool:
        began.append(time.monotonic())
        return began[-1] - began[0] >= seconds

    return due


def test_killed_at_a_few_lines_of_the_journal(fleet: Fleet) -> None:
    assert sweep(fleet, [at_line(fleet, number) for number in (2, 5, 11)]) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("fleet", [20], indirect=True)
def test_killed_at_every_line_and_at_fifty_moments(fleet: Fleet) -> None:
    rng = random.Random(1)
    moments = [at_line(fleet, number) for number in range(2, 40)]
    moments += [after(0.4 + rng.random() * 2.5) for _ in range(50)]
    assert sweep(fleet, moments) >= 60
