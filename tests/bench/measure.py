"""Runs a command and says how long it took and how much memory it held; nothing else runs meanwhile."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """``seconds`` of wall time, ``mib`` of the process itself at its largest, its exit code and output."""

    seconds: float
    mib: float
    code: int
    output: str


def run(argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], ok: Sequence[int] = (0,)) -> Run:
    """One run. Raises ``RuntimeError`` with its output for any other exit code."""
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(
            list(argv), cwd=cwd, env=dict(environ), stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        output = said.read().decode("utf-8", "replace")
    if process.returncode not in ok:
        raise RuntimeError(f"{' '.join(argv)} exited with {process.returncode}:\n{output[-3000:]}")
    return Run(seconds, usage.ru_maxrss / 1024, process.returncode, output)


def several(times: int, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> list[Run]:
    """After one run that warms the caches."""
    run(argv, cwd=cwd, environ=environ)
    return [run(argv, cwd=cwd, environ=environ) for _ in range(times)]


def median(runs: Sequence[Run]) -> float:
    """Of the seconds."""
    return statistics.median(r.seconds for r in runs)


def largest(runs: Sequence[Run]) -> float:
    """MiB."""
    return max(r.mib for r in runs)
