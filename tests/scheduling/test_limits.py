"""Which limits the runs of a stream put out of reach."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transom.scheduling.limits import ENOUGH, out_of_reach


@given(st.lists(st.integers(1, 10_000), min_size=ENOUGH, max_size=32), st.integers(1, 10_000))
def test_more_than_half_of_the_runs_are_no_shorter_than_a_limit_that_is_out_of_reach(
    runs: list[int], limit: int
) -> None:
    found = out_of_reach(runs, {"q": limit, "other": 20_000})
    assert found == (["q"] if found else [])
    missed = sum(run > limit for run in runs)
    assert missed >= len(runs) / 2 if found else missed <= len(runs) / 2


def test_few_runs_outliers_and_single_queries_say_nothing() -> None:
    assert out_of_reach([9] * (ENOUGH - 1), {"q": 1, "other": 99}) == []
    assert out_of_reach([9] * ENOUGH, {"q": 1}) == []
    assert out_of_reach([99] * 3 + [5] * ENOUGH, {"q": 6, "other": 99}) == []
