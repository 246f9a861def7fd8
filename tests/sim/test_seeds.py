"""A slice of the histories that ``make sim`` plays; a failure prints itself as a test."""

from __future__ import annotations

import pytest
from tests.sim.history import play


@pytest.mark.parametrize("first", range(0, 240, 20))
def test_histories(first: int) -> None:
    for seed in range(first, first + 20):
        play(seed)
