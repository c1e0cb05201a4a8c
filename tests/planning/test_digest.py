"""What a running application remembers of its cuts: half as many of those of ten minutes ago, and never too many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transom.model.phases import CutPhases, Phase, StageTasks
from transom.planning.digest import HALF, MOST, Digest

SECOND = 1_000_000


def cut(number: int, **values) -> CutPhases:
    given = {"stages": (StageTasks(1, 1.0, 0.0, 1.0, 1.0),), **values}
    return CutPhases("s", number, 1_000, {Phase.MAP: 0.1}, **given)


def filled(cuts: int, every: int = SECOND) -> Digest:
    digest = Digest()
    for number in range(cuts):
        digest.take(cut(number), number * every)
    return digest


def test_half_are_left_after_the_half_life_and_a_quarter_after_two() -> None:
    digest = filled(128)
    left = [len(digest.cuts(128 * SECOND + k * HALF)) for k in (0, 1, 2, 3)]
    assert left[0] == 128
    assert left[1:] == sorted(left[1:], reverse=True)
    assert all(abs(count - 128 / 2**k) <= 2 for k, count in enumerate(left))


def test_what_went_does_not_come_back_and_order_stays() -> None:
    digest = filled(128)
    before = digest.cuts(128 * SECOND)
    after = digest.cuts(128 * SECOND + HALF)
    assert [one for one in before if one in after] == after
    assert digest.cuts(128 * SECOND) == after


def test_every_second_cut_that_closes_windows_is_thinned_like_the_others() -> None:
    digest = Digest()
    for number in range(200):
        digest.take(cut(number, windows=number % 2), number)
    left = digest.cuts(200 + HALF)
    assert 0.3 < sum(one.windows for one in left) / len(left) < 0.7


@given(st.lists(st.integers(0, 2 * HALF), max_size=60), st.integers(1, 40))
def test_there_are_never_too_many_and_the_newest_half_life_is_not_empty(pauses: list[int], burst: int) -> None:
    digest, now, number = Digest(), 0, 0
    for pause in [*pauses, 0]:
        now += pause
        for _ in range(burst):
            number += 1
            digest.take(cut(number), now)
        assert len(digest._kept) <= MOST
    assert len(digest.cuts(now)) >= min(number, burst) // 8


def test_many_cuts_keep_a_sample_of_the_whole_time() -> None:
    digest = filled(6_000, every=SECOND // 10)  # ten minutes
    numbers = [one.number for one in digest.cuts(600 * SECOND)]
    assert MOST // 4 <= len(numbers) <= MOST
    assert numbers[0] < 600
    assert numbers[-1] > 5_400


def test_cuts_that_say_nothing_of_costs_are_passed_over() -> None:
    digest = Digest()
    digest.take(cut(1, stages=()), 0)
    assert not digest.cuts(0)
    digest.take(cut(2, stages=(), windows=1), 0)
    assert len(digest.cuts(0)) == 1


def test_what_was_before_a_change_is_forgotten() -> None:
    digest = filled(100)
    digest.forget_before(60)
    assert [one.number for one in digest.cuts(100 * SECOND)] == list(range(60, 100))
