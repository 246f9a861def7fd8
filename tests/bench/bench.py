"""The benchmarks of ``make bench``: what was measured here and now, beside the bar and a peer of the same run.

    python -m tests.bench.bench [--only NAME…] [--servers N] [--json FILE]

Plan and apply run against the contract server (``tests/contract/server.py``), a process of its own. A peer that is
not on the PATH is left out, never guessed. Exit status 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.backend import backend, demo
from tests.bench.measure import largest, median, run, several
from tests.bench.report import Report
from tests.bench.world import project, terraform

DELAY_MS = 130
PARALLELISM = 64


def commands(report: Report, folder: Path, servers: int) -> None:
    """``version`` and ``validate``, which ask nobody."""
    with project(folder) as here:
        here.stack(10)
        runs = several(15, here.command("version"), cwd=here.folder, environ=here.environ)
        report.add("mcpiac version", median(runs) * 1000, "ms", 80)
        runs = several(9, here.command("validate"), cwd=here.folder, environ=here.environ)
        report.add("mcpiac validate, 10 servers", median(runs) * 1000, "ms", 250)
    program = shutil.which("terraform")
    if program:
        made = terraform(folder / "tf", 10)
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        run([program, "init", "-no-color"], cwd=made, environ=environ)
        report.add(
            "terraform version", median(several(9, [program, "version"], cwd=made, environ=environ)) * 1000, "ms"
        )
        runs = several(5, [program, "validate"], cwd=made, environ=environ)
        report.add("terraform validate, 10 blocks", median(runs) * 1000, "ms")


def plan(report: Report, folder: Path, servers: int) -> None:
    """A plan that finds nothing to do, live refreshed over HTTP."""
    with project(folder) as here:
        here.stack(servers)
        words = here.command("apply", "-y", "--parallelism", str(PARALLELISM))
        made = run(words, cwd=here.folder, environ=here.environ)
        report.add(f"apply of {servers} servers without any delay", made.seconds, "s", note=f"{made.mib:.0f} MiB")
        here.server.forget()
        runs = several(5, here.command("plan"), cwd=here.folder, environ=here.environ)
        if "No changes" not in runs[0].output:
            raise RuntimeError(f"this plan was to find nothing:\n{runs[0].output[-2000:]}")
        seconds = median(runs)
        report.add(f"no-op plan of {servers} servers", seconds, "s", 1.2)
        report.add("  its memory", largest(runs), "MiB", 150)
        report.add("  its requests", len(here.server.requests()) / (len(runs) + 1), "", 12)
    program = shutil.which("terraform")
    if program:
        made_tf = terraform(folder / "tf", servers)
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        run([program, "init", "-no-color"], cwd=made_tf, environ=environ)
        run([program, "apply", "-auto-approve", "-no-color"], cwd=made_tf, environ=environ)
        peers = several(3, [program, "plan", "-no-color"], cwd=made_tf, environ=environ)
        report.add(f"terraform plan of {servers} blocks", median(peers), "s", note=f"{largest(peers):.0f} MiB")
        report.add("  mcpiac / terraform", seconds / median(peers), "×", 0.5)


def apply(report: Report, folder: Path, servers: int) -> None:
    """Applying 100 servers and ten times as many, each call taking its time."""
    took: dict[int, float] = {}
    for count, times in ((100, 3), (servers, 1)):
        made = []
        for number in range(times):
            with project(folder / f"{count}-{number}", delay_ms=DELAY_MS) as here:
                here.stack(count)
                words = here.command("apply", "-y", "--parallelism", str(PARALLELISM))
                made.append(run(words, cwd=here.folder, environ=here.environ))
                log = here.server.requests()
        floor, chain = _floor(log)
        took[count] = median(made)
        note = f"{len(log)} calls, floor {floor:.2f} s (chain {chain:.2f} s), {largest(made):.0f} MiB"
        report.add(f"apply of {count} servers, {DELAY_MS} ms a call", took[count], "s", note=note)
        report.add("  apply / floor", took[count] / floor, "×", 1.2 if count == 100 else None)
    report.add(f"  apply of {servers} / of 100", took[servers] / took[100], "×", 12 if servers == 1000 else None)


def _floor(log: list[dict[str, Any]]) -> tuple[float, float]:
    """max(longest chain, all call time / parallelism), and the chain: the time that calls about one sandbox fill."""
    delay = DELAY_MS / 1000
    spans: dict[str, list[float]] = defaultdict(list)
    for request in log:
        pieces = request["path"].split("/")
        about = pieces[4] if len(pieces) > 4 else pieces[2].rpartition("-")[0] if pieces[1] == "hosted" else ""
        if about:
            spans[about].append(request["at"])
    chain = delay + max((_filled(starts, delay) for starts in spans.values()), default=0.0)
    return max(chain, len(log) * delay / PARALLELISM), chain


def _filled(starts: list[float], delay: float) -> float:
    """The length of the union of the calls; the create that came before is the caller's to add."""
    filled, until = 0.0, 0.0
    for at in sorted(starts):
        filled += at + delay - max(at, until) if at + delay > until else 0.0
        until = max(until, at + delay)
    return filled


PARTS: dict[str, Callable[[Report, Path, int], None]] = {
    "commands": commands,
    "plan": plan,
    "apply": apply,
    "backend": backend,
    "demo": demo,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = Report()
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="mcpiac-bench-") as folder:
            PARTS[name](report, Path(folder), options.servers)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in report.rows], indent=1) + "\n")
    missed = [row for row in report.rows if row.missed]
    print(f"\n{len(missed)} of {sum(row.bar is not None for row in report.rows)} bars missed.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
