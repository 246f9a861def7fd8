"""The table of retries: how often, how long, and when not."""

from __future__ import annotations

import asyncio

import pytest

from mcpiac.executor.retry import LONGEST, POLICIES, delay, retrying
from mcpiac.model.outcome import ErrorKind, ProviderError


class Failing:
    """Fails with these, one after another, then answers."""

    def __init__(self, *faults: ProviderError) -> None:
        self.faults = list(faults)
        self.calls = 0
        self.slept: list[float] = []
        self.told: list[tuple[int, float]] = []

    async def call(self) -> str:
        self.calls += 1
        if self.faults:
            raise self.faults.pop(0)
        return "answer"

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def run(self, give_up: bool = False) -> str:
        return asyncio.run(
            retrying(
                self.call,
                sleep=self.sleep,
                random=lambda: 1.0,
                give_up=lambda: give_up,
                again=lambda attempt, wait, fault: self.told.append((attempt, wait)),
            )
        )


@pytest.mark.parametrize("kind", POLICIES)
def test_each_kind_is_tried_as_often_as_the_table_says(kind: ErrorKind) -> None:
    one = Failing(*(ProviderError(kind, "no") for _ in range(100)))
    with pytest.raises(ProviderError):
        one.run()
    assert one.calls == POLICIES[kind].attempts
    assert one.told == list(enumerate(one.slept, 1))


def test_waits_double_up_to_the_longest() -> None:
    one = Failing(*(ProviderError("throttled", "no") for _ in range(7)))
    assert one.run() == "answer"
    assert one.slept == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]


def test_what_the_service_asks_for_is_honoured_up_to_a_minute() -> None:
    assert delay(ProviderError("throttled", "no", retry_after=7.0), 1, 0.5) == 7.0
    assert delay(ProviderError("throttled", "no", retry_after=900.0), 1, 0.5) == LONGEST
    assert delay(ProviderError("throttled", "no", retry_after=-5.0), 1, 0.5) == 0.0


def test_randomness_takes_off_up_to_a_half() -> None:
    fault = ProviderError("transient", "no")
    assert delay(fault, 1, 0.0) == 0.25
    assert delay(fault, 1, 1.0) == 0.5
    assert delay(fault, 50, 1.0) == POLICIES["transient"].longest


def test_an_interrupted_run_tries_nothing_again() -> None:
    one = Failing(ProviderError("transient", "no"))
    with pytest.raises(ProviderError):
        one.run(give_up=True)
    assert one.calls == 1


def test_a_bug_is_no_failure_to_try_again() -> None:
    async def bug() -> None:
        raise ValueError("a bug")

    async def never(seconds: float) -> None:
        raise AssertionError(seconds)

    with pytest.raises(ValueError, match="a bug"):
        asyncio.run(retrying(bug, sleep=never, random=lambda: 0.0, give_up=lambda: False, again=lambda *_: None))


def test_every_kind_has_a_row() -> None:
    from typing import get_args

    assert set(POLICIES) == set(get_args(ErrorKind))
