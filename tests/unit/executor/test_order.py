"""The order in which a run tells what happens."""

from __future__ import annotations

from tests.sim.client import Trouble
from tests.unit.executor.test_run import Scene, all_of

from mcpiac.model.event import ActionFailed, ActionSkipped


def test_a_failure_is_told_before_what_it_costs() -> None:
    scene = Scene("a")
    assert scene.apply(Trouble(fail_at=all_of("refused", first=6))).code != 0
    kinds = [type(event) for event in scene.events]
    assert ActionSkipped in kinds
    assert kinds.index(ActionFailed) < kinds.index(ActionSkipped)
