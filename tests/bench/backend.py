"""The embedded backend among the benchmarks: its own figures, the proxy's, and the demo applied for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.measure import median, run
from tests.bench.report import Report
from tests.bench.world import MCPIAC

HERE = Path(__file__).parent
STACK = HERE.parents[1] / "stacks" / "demo.yaml"

FIGURES = {
    "create_to_running_ms": ("create to running", "ms", 150.0),
    "wake_and_call_ms": ("wake of a paused sandbox and the first call", "ms", 60.0),
    "daemon_without_sandboxes_mib": ("daemon without sandboxes", "MiB", 60.0),
    "daemon_with_paused_mib": ("daemon with 100 paused", "MiB", 100.0),
    "added_median_ms": ("hosted URL adds, median", "ms", 1.0),
    "added_p99_ms": ("hosted URL adds, p99", "ms", 5.0),
}


def backend(report: Report, folder: Path, servers: int) -> None:
    """Each of the two programs measures in processes of its own."""
    for program in ("local_backend.py", "proxy.py"):
        said = subprocess.run([sys.executable, str(HERE / program), "--json"], capture_output=True, text=True)
        if not said.stdout.strip():
            raise RuntimeError(f"{program} ended without a figure:\n{said.stderr[-2000:]}")
        figures = json.loads(said.stdout)
        for name, (what, unit, bar) in FIGURES.items():
            if name in figures:
                report.add(what, figures[name], unit, bar)
        if "calls_per_second" in figures:
            report.add(
                "hosted URL, milliseconds for 2,000 calls", 2_000_000 / figures["calls_per_second"], "ms", 1000
            )


def demo(report: Report, folder: Path, servers: int) -> None:
    """The demo's apply once its packages are stored. The first one, which fetches them, needs the registry."""
    place = folder / "project"
    (place / "stacks").mkdir(parents=True)
    shutil.copy(STACK, place / "stacks")
    tokens = {"FILES_SERVER_TOKEN": "fake-files-token", "EVERYTHING_SERVER_TOKEN": "fake-everything-token"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MCPIAC_", "XDG_"))}
    environ = {**kept, **tokens, "MCPIAC_HOME": str(folder / "home")}
    up, down = [str(MCPIAC), "apply", "-y"], [str(MCPIAC), "destroy", "-y", "demo"]
    try:
        first = run(up, cwd=place, environ=environ)
        report.add("demo apply, packages fetched", first.seconds, "s")
        runs = []
        for _ in range(3):
            run(down, cwd=place, environ=environ)
            runs.append(run(up, cwd=place, environ=environ))
        report.add("demo apply, packages stored", median(runs), "s", 5)
    finally:
        run(down, cwd=place, environ=environ, ok=(0, 1))
        run([str(MCPIAC), "daemon", "stop"], cwd=place, environ=environ, ok=(0, 1))
