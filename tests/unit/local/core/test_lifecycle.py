"""When a sandbox is paused, when its time is up, when it is given up: with clocks of the test's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpiac.local.lifecycle import CRASHES, FIRST_WAIT, LONGEST_WAIT, Facts, Restarts, Verdict, decide, idle_in

UP = Facts(up=True, paused=False, busy=False, deadline=None, idle_seconds=900.0, active=100.0)


@pytest.mark.parametrize(
    ("facts", "wall", "boot", "expected"),
    [
        (UP, 0, 100, Verdict(None, 900)),
        (UP, 0, 999, Verdict(None, 1)),
        (UP, 0, 1000, Verdict("pause", None)),
        (replace(UP, busy=True), 0, 5000, Verdict(None, 900)),
        (replace(UP, paused=True), 0, 5000, Verdict(None, None)),
        (replace(UP, idle_seconds=None), 0, 5000, Verdict(None, None)),
        (replace(UP, deadline=50.0), 49, 100, Verdict(None, 1)),
        (replace(UP, deadline=50.0), 50, 100, Verdict("expire", None)),
        (replace(UP, deadline=50.0), 50, 5000, Verdict("expire", None)),
        (replace(UP, deadline=50.0, paused=True), 51, 100, Verdict("expire", None)),
        (replace(UP, deadline=50.0, paused=True), 49, 5000, Verdict(None, 1)),
        (replace(UP, deadline=50.0, busy=True), 51, 100, Verdict("expire", None)),
        (replace(UP, up=False, deadline=50.0), 51, 5000, Verdict(None, None)),
    ],
)
def test_decide(facts: Facts, wall: float, boot: float, expected: Verdict) -> None:
    assert decide(facts, wall=wall, boot=boot) == expected


@given(
    st.builds(
        Facts,
        up=st.booleans(),
        paused=st.booleans(),
        busy=st.booleans(),
        deadline=st.none() | st.floats(0, 1e9),
        idle_seconds=st.none() | st.floats(1, 1e6),
        active=st.floats(0, 1e9),
    ),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
)
def test_nothing_busy_is_paused_and_waiting_ends(facts: Facts, wall: float, boot: float) -> None:
    verdict = decide(facts, wall=wall, boot=boot)
    if verdict.due == "pause":
        assert facts.up
        assert not facts.busy
        assert not facts.paused
    if verdict.due is not None:
        assert verdict.again is None
    elif verdict.again is not None:
        assert verdict.again > 0


def test_idle_in() -> None:
    assert idle_in(UP, boot=400) == 600
    assert idle_in(UP, boot=4000) == 0
    assert idle_in(replace(UP, busy=True), boot=4000) == 900
    assert idle_in(replace(UP, paused=True), boot=400) is None
    assert idle_in(replace(UP, idle_seconds=None), boot=400) is None


def test_a_sandbox_that_ends_at_once_is_started_ever_later_and_then_given_up() -> None:
    restarts = Restarts()
    waits = [restarts.next(0.1) for _ in range(CRASHES)]
    assert waits == [FIRST_WAIT * 2**n for n in range(CRASHES)]
    assert restarts.next(0.1) is None


def test_one_that_held_for_a_while_begins_anew() -> None:
    restarts = Restarts()
    for _ in range(CRASHES):
        restarts.next(0.1)
    assert restarts.next(60) == FIRST_WAIT
    assert restarts.failures == 1


def test_waits_are_bounded() -> None:
    restarts = Restarts(wait=LONGEST_WAIT)
    assert restarts.next(0) == LONGEST_WAIT
    assert restarts.next(0) == LONGEST_WAIT
