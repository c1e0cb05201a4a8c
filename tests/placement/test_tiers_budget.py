"""Which partials the driver keeps."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from transom.placement.tiers import DEMOTED_AT, Footprint, in_files

SIZES = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=6)


def footprints(sizes: list[tuple[int, int]]) -> list[Footprint]:
    return [Footprint(str(i), here, there) for i, (here, there) in enumerate(sizes)]


@given(SIZES, st.sets(st.integers(0, 6).map(str)), st.integers(1, 300))
def test_the_driver_keeps_within_its_budget(sizes, now, budget):
    all_of_them = footprints(sizes)
    chosen = in_files(now, all_of_them, budget)
    names = {one.name for one in all_of_them}
    assert chosen <= names
    held = sum(one.here for one in all_of_them if one.name not in chosen)
    assert held <= budget or chosen == names
    back = [one for one in all_of_them if one.name in now and one.name not in chosen]
    if back:
        assert held + sum(one.there for one in back) <= DEMOTED_AT * budget


@given(SIZES, st.sets(st.integers(0, 6).map(str)), st.integers(1, 300))
@example([(0, 0), (1, 1)], {"0"}, 1)
def test_nothing_goes_to_and_fro(sizes, now, budget):
    """Once chosen, and moved, the same sizes move nothing more."""
    chosen = in_files(now, footprints(sizes), budget)
    moved = [
        Footprint(one.name, 0, one.here + one.there)
        if one.name in chosen
        else Footprint(one.name, one.here + one.there, 0)
        for one in footprints(sizes)
    ]
    assert in_files(chosen, moved, budget) == chosen


def test_the_largest_goes_first_and_small_ones_come_back_late():
    sizes = [Footprint("a", 60, 0), Footprint("b", 50, 0), Footprint("c", 10, 0)]
    assert in_files((), sizes, 120) == frozenset()
    assert in_files((), sizes, 100) == {"a"}
    assert in_files({"a"}, [Footprint("a", 0, 20), Footprint("b", 10, 0)], 100) == {"a"}
    assert in_files({"a"}, [Footprint("a", 0, 15), Footprint("b", 10, 0)], 100) == frozenset()
