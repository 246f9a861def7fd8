"""Plays histories: ``python -m tests.sim --seed 1 --runs 20000``. Prints what failed as tests that can be pasted."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback

from tests.sim.history import Broken, play


def _one(seed: int) -> tuple[int, str]:
    try:
        play(seed)
    except Broken as fault:
        return seed, str(fault)
    except Exception as fault:
        return seed, "".join(traceback.format_exception(fault))
    return seed, ""


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    options.add_argument("--seed", type=int, default=1, help="the first one")
    options.add_argument("--runs", type=int, default=1000, help="how many seeds from there on")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = options.parse_args()
    began, failed, done = time.monotonic(), 0, 0
    with multiprocessing.Pool(chosen.jobs) as pool:
        for seed, why in pool.imap_unordered(_one, range(chosen.seed, chosen.seed + chosen.runs), chunksize=20):
            done += 1
            if why:
                failed += 1
                print(f"--- seed {seed}\n{why}\n", flush=True)
            if done % 1000 == 0:
                print(f"{done} histories, {failed} broken, {time.monotonic() - began:.0f} s", file=sys.stderr)
    seconds = time.monotonic() - began
    last = chosen.seed + chosen.runs - 1
    print(f"{done} histories (seeds {chosen.seed} to {last}), {failed} broken, {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
