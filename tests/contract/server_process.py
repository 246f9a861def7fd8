"""Starts the contract server for a test or a benchmark, and speaks to its control endpoints."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("server.py")


class ContractServer(AbstractContextManager["ContractServer"]):
    """The server as a process, ended on leaving. ``options`` as on its command line, without the dashes."""

    def __init__(self, **options: Any) -> None:
        words = [sys.executable, str(SERVER)]
        for name, value in options.items():
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [] if value in (None, False) else [flag, str(value)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the contract server ended with {self._process.wait()}")
        self.port: int = json.loads(line)["port"]
        self.pid = self._process.pid
        self.url = f"http://127.0.0.1:{self.port}"

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def fault(self, do: str, method: str = "", path: str = "", times: int = 1, **rest: Any) -> None:
        """Order a fault (``faults.py``) for the next calls that fit."""
        order = {"do": do, "path": path, "times": times, **rest}
        self.control("POST", "faults", [{**order, "method": method} if method else order])

    def requests(self) -> list[dict[str, Any]]:
        """What was sent so far."""
        found: list[dict[str, Any]] = self.control("GET", "log")["requests"]
        return found

    def peak(self) -> int:
        """The most calls at one time."""
        found: int = self.control("GET", "log")["peak"]
        return found

    def forget(self) -> None:
        self.control("DELETE", "log")

    def delay(self, milliseconds: float) -> None:
        self.control("POST", "delay", {"ms": milliseconds})

    def meddle(self, id: str, **changes: Any) -> None:
        self.control("POST", f"sandboxes/{id}", changes)

    def vanish(self, id: str) -> None:
        self.control("DELETE", f"sandboxes/{id}")

    def control(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/_control/{path}", data=data, method=method, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
