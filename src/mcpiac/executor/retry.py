"""Which failures are tried again, how often and after how long: one table, error kind → policy.

Every action is idempotent, so ``in_doubt`` may be tried again (a create with its key). Which single HTTP requests may
be sent again is the provider's business; what arrives here is how the call ended after that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from mcpiac.model.outcome import ErrorKind, ProviderError

T = TypeVar("T")

LONGEST = 60.0
"""Seconds that a ``Retry-After`` is honoured for at most."""


@dataclass(frozen=True, slots=True)
class Policy:
    """``attempts`` counts the first one. Waits double from ``base`` seconds up to ``longest``, less up to a half."""

    attempts: int
    base: float = 0.5
    longest: float = 8.0


POLICIES: Mapping[ErrorKind, Policy] = {
    "transient": Policy(4),
    "throttled": Policy(8, base=1.0, longest=LONGEST),
    "conflict": Policy(3, base=1.0),
    "in_doubt": Policy(4),
    "not_found": Policy(1),
    "rejected": Policy(1),
    "unauthorised": Policy(1),
}


async def retrying(
    call: Callable[[], Awaitable[T]],
    *,
    sleep: Callable[[float], Awaitable[None]],
    random: Callable[[], float],
    give_up: Callable[[], bool],
    again: Callable[[int, float, ProviderError], None],
) -> T:
    """The answer of ``call``, tried by the table; raises the last ``ProviderError``.

    ``give_up`` is asked after a failure: True ends it. ``again(attempt, wait, error)`` is told before each wait.
    """
    try:
        return await call()
    except ProviderError as fault:
        # Nearly every call goes well: what follows is set up only for one that did not.
        failed = [fault]

    async def again_or_first() -> T:
        if failed:
            raise failed.pop()
        return await call()

    def over(state: RetryCallState) -> bool:
        fault = _fault(state)
        return state.attempt_number >= POLICIES[fault.kind].attempts or give_up()

    def wait(state: RetryCallState) -> float:
        return delay(_fault(state), state.attempt_number, random())

    def tell(state: RetryCallState) -> None:
        again(state.attempt_number, state.upcoming_sleep, _fault(state))

    attempts = AsyncRetrying(
        retry=retry_if_exception_type(ProviderError),
        stop=over,
        wait=wait,
        before_sleep=tell,
        sleep=sleep,
        reraise=True,
    )
    return await attempts(again_or_first)


def delay(fault: ProviderError, attempt: int, random: float) -> float:
    """Seconds to wait after failed ``attempt`` (from 1); ``random`` lies in 0..1. A ``Retry-After`` goes first."""
    if fault.retry_after is not None:
        return min(max(fault.retry_after, 0.0), LONGEST)
    policy = POLICIES[fault.kind]
    return min(policy.longest, policy.base * 2.0 ** (attempt - 1)) * (0.5 + random / 2)


def _fault(state: RetryCallState) -> ProviderError:
    assert state.outcome is not None
    fault = state.outcome.exception()
    assert isinstance(fault, ProviderError)
    return fault
