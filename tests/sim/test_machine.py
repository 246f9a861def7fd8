"""Hypothesis chooses the steps: edits, runs, kills, faults, time; it shrinks what breaks an invariant."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.sim.client import Trouble
from tests.sim.history import DEEDS, EDITS, NAMES, History
from tests.sim.net import FAULTS


class Fleet(RuleBasedStateMachine):
    """One stack, whatever happens to it."""

    history: History

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.history = History(seed)
        self.history.edit()

    @rule(name=st.sampled_from(NAMES), what=st.sampled_from(sorted(EDITS)))
    def edit(self, name: str, what: str) -> None:
        one = self.history
        spec = one.servers.get(name)
        if spec is not None:
            EDITS[what](one, name, spec)
            one.steps.append(f"{what} {name}")
        elif name not in {other.lifecycle.moved_from for other in one.servers.values()}:
            one.servers[name] = one.spec()
            one._value(name)
            one.steps.append(f"add {name}")

    @rule(what=st.sampled_from(sorted(DEEDS)), which=st.integers(0, 4))
    def somebody(self, what: str, which: int) -> None:
        one = self.history
        boxes = one.world.ours(one.lineage) if one.lineage else []
        if boxes:
            DEEDS[what](one, boxes[which % len(boxes)])
            one.steps.append(f"somebody: {what}")

    @rule(
        rate=st.sampled_from((0.0, 0.05, 0.3)),
        kinds=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=3, unique=True),
        kill=st.none() | st.integers(1, 400),
        interrupt=st.lists(st.integers(1, 40), max_size=2),
        destroy=st.booleans(),
    )
    def run_in_trouble(
        self, rate: float, kinds: list[str], kill: int | None, interrupt: list[int], destroy: bool
    ) -> None:
        trouble = Trouble(rate=rate, kinds=kinds, kill_round=kill, interrupt_at=tuple(interrupt))
        self.history.apply(trouble, **({"destroy": True} if destroy else {}))

    @rule(at=st.integers(1, 120), kills=st.booleans(), errno=st.sampled_from((5, 13, 28, 30)))
    def run_on_a_bad_disk(self, at: int, kills: bool, errno: int) -> None:
        def fail(what: str, operation: int) -> bool:
            if operation < at or what in ("read", "open"):
                return False
            if kills:
                return True
            raise OSError(errno, "simulated")

        self.history.apply(Trouble(disk=fail))

    @rule(seconds=st.sampled_from((30.0, 600.0, 7200.0)))
    def wait(self, seconds: float) -> None:
        self.history.clock.seconds += seconds

    @rule(seed=st.integers(0, 2**16))
    def power_loss(self, seed: int) -> None:
        self.history.machine.rng = random.Random(seed)
        self.history.machine.reboot()
        self.history.check()

    @rule(number=st.integers(0, 9))
    def secret(self, number: int) -> None:
        for name in self.history.servers:
            self.history.machine.values[name] = {"TOKEN": f"secCANARY{number:016x}"}

    def teardown(self) -> None:
        if hasattr(self, "history"):
            self.history.settle()


TestFleet: Any = Fleet.TestCase
TestFleet.settings = settings(
    max_examples=100,
    stateful_step_count=10,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
