"""A plan that changes nothing is cheap, and explains nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from planner_cases import INSTANCES, NOW, TRAITS, Secrets, counter, empty, plan, stack
from planner_effects import apply

from mcpiac.model.live import LiveView
from mcpiac.model.plan import PlanOptions
from mcpiac.planner import plan as make_plan

WISH = {"files": {"/home/user/project/notes.txt": "only\n"}, "env": {"LOG_LEVEL": "info"}, "ttl": 28800}


def test_a_thousand_servers_without_a_change() -> None:
    """The planner's own share is to be 0.15 s; a busy machine is given the fourfold."""
    one = stack({"s0": WISH}, "local")
    world = apply(empty("local"), plan(empty("local"), one))
    record, box, found = world.state.servers["s0"], world.state.sandboxes["s0"], world.live["sbx_1"]
    wanted = stack({f"s{i}": WISH for i in range(1000)}, "local")
    traces = Secrets({}).traces(wanted)
    spec = json.dumps(record.spec)
    servers = {
        name: replace(record, sandbox=name, spec=json.loads(spec), variable=name.upper()) for name in wanted.servers
    }
    boxes = {
        name: replace(box, id=f"id_{name}", name=f"mcp-demo--{name}-3fa9c1", secrets=traces[name]) for name in servers
    }
    live = {one.id: replace(found, id=one.id) for one in boxes.values()}
    state = replace(world.state, servers=servers, sandboxes=boxes)
    view = LiveView(INSTANCES["local"], live)

    def run() -> float:
        began = time.perf_counter()
        made = make_plan(
            wanted,
            state,
            view,
            TRAITS["local"],
            options=PlanOptions(),
            fingerprints=traces,
            now=NOW,
            ids=counter("id"),
        )
        took = time.perf_counter() - began
        assert made.actions == ()
        assert made.diagnostics == ()
        assert (len(made.changes), made.running) == (1000, 1000)
        return took

    assert min(run() for _ in range(5)) < 0.6


@pytest.mark.parametrize(("changed", "loaded"), [("{}", False), ("{'args': ['x', 'y']}", True)])
def test_deepdiff_is_loaded_only_where_nested_values_differ(changed: str, loaded: bool) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from planner_cases import empty, plan, stack
from planner_effects import apply
one = stack({{"a": {{}}}}, "local")
world = apply(empty("local"), plan(empty("local"), one))
made = plan(world, stack({{"a": {changed}}}, "local"))
print("deepdiff" in sys.modules, len(made.actions))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert said == [str(loaded), "2" if loaded else "0"]
