"""What an action costs does not grow with the fleet: syncs, bytes written, requests."""

from __future__ import annotations

import random
from functools import cache

import pytest
from tests.sim import world as world_module
from tests.sim.client import FOLDER, STACK, Machine, Process, Trouble, stack_of
from tests.sim.virtual import Clock
from tests.sim.world import World

from mcpiac.model.spec import Package, ServerSpec


@cache
def costs(count: int) -> tuple[float, float, float]:
    """Journal bytes, requests and file operations per action, of an apply of ``count`` servers."""
    clock, rng = Clock(), random.Random(1)
    world = World(clock, rng, extended=True)
    machine = Machine(world, clock, rng)
    sizes: list[int] = []

    def watch(what: str, operation: int) -> bool:
        if what == "remove":
            node = machine.platter.names.get(FOLDER / f"{STACK}.journal")
            sizes.append(len(node.data) if node else 0)
        return False

    stack = stack_of({f"s{n:04}": ServerSpec(package=Package("npm", "x", "1.0.0")) for n in range(count)})
    process = Process(machine, Trouble(disk=watch))
    ended = process.apply(stack, parallelism=16)
    assert ended.code == 0
    assert ended.plan is not None
    actions = len(ended.plan.actions)
    return max(sizes) / actions, ended.requests / actions, ended.operations / actions


@pytest.fixture(autouse=True)
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "PAGE", 100)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_an_action_costs_the_same_in_a_larger_fleet(count: int) -> None:
    small, large = costs(10), costs(count)
    for what, before, after in zip(("bytes", "requests", "file operations"), small, large, strict=True):
        assert after <= before * 1.25, f"{what} per action: {before:.1f} with 10 servers, {after:.1f} with {count}"
