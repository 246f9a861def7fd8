"""What may start, what is skipped, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpiac.executor.schedule import Schedule
from mcpiac.model.action import Action


def action(id: str, *after: str) -> Action:
    return Action(id, id.split(".")[0], "host", id.split(".")[0], after=after)


def chain(server: str, length: int) -> list[Action]:
    return [action(f"{server}.{n}", *([f"{server}.{n - 1}"] if n else [])) for n in range(length)]


def drain(schedule: Schedule) -> list[str]:
    ids = []
    while (one := schedule.take()) is not None:
        ids.append(one.id)
    return ids


def test_the_longest_way_goes_first_and_equals_in_the_plans_order() -> None:
    schedule = Schedule([*chain("a", 1), *chain("b", 3), *chain("c", 3)])
    assert drain(schedule) == ["b.0", "c.0", "a.0"]


def test_a_failure_skips_what_depends_on_it_and_nothing_else() -> None:
    actions = [*chain("a", 3), *chain("b", 2)]
    schedule = Schedule(actions)
    assert drain(schedule) == ["a.0", "b.0"]
    skipped = schedule.failed(actions[0])
    assert [(one.action.id, one.because.id) for one in skipped] == [("a.1", "a.0"), ("a.2", "a.0")]
    schedule.done(actions[3])
    assert drain(schedule) == ["b.1"]
    schedule.done(actions[4])
    assert schedule.rest() == []


def test_it_can_say_why_something_waits() -> None:
    schedule = Schedule([action("a.0"), action("b.0"), action("c.0", "b.0", "a.0")])
    assert schedule.waits_for("c.0") == ("a.0", "b.0")
    assert schedule.waits_for("a.0") == ()


def test_what_an_earlier_run_did_is_not_waited_for() -> None:
    schedule = Schedule(chain("a", 3), done={"a.0"})
    assert drain(schedule) == ["a.1"]
    assert [one.id for one in schedule.rest()] == ["a.1", "a.2"]


def test_a_circle_and_a_double_id_are_bugs() -> None:
    with pytest.raises(ValueError, match="circle"):
        Schedule([action("a.0", "b.0"), action("b.0", "a.0")])
    with pytest.raises(ValueError, match="one id"):
        Schedule([action("a.0"), action("a.0")])


@given(st.data())
def test_every_action_runs_once_after_all_that_it_waits_for(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    actions = [
        action(f"n{n}.x", *(f"n{m}.x" for m in data.draw(st.sets(st.integers(0, n - 1), max_size=3))))
        if n
        else action("n0.x")
        for n in range(count)
    ]
    schedule, running, ended, failed = Schedule(actions), [], set(), set()
    skipped: set[str] = set()
    while True:
        while (one := schedule.take()) is not None:
            assert set(one.after) <= ended
            running.append(one)
        if not running:
            break
        one = running.pop(data.draw(st.integers(0, len(running) - 1)))
        if data.draw(st.integers(0, 4)):
            schedule.done(one)
            ended.add(one.id)
        else:
            failed.add(one.id)
            skipped |= {other.action.id for other in schedule.failed(one)}
    assert ended | failed | skipped == {one.id for one in actions}
    assert not ended & skipped
    for one in actions:
        if one.id in skipped:
            assert set(one.after) & (failed | skipped)
