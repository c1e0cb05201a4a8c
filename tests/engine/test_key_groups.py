"""Where key groups live, and which executor merges what: no Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.engine.cluster.files import PartialFiles, Slice
from transom.engine.cluster.groups import KeyGroups
from transom.engine.cluster.resident import Feed
from transom.engine.cluster.store import Merge, Part, by_group
from transom.engine.tables import Contents, Origin
from transom.placement.balance import Flux, Move
from transom.placement.migration import Strategy

GROUPS = 4
CONTENTS = Contents(Origin("b", ("k",)), ("n",))
FEED = Feed(CONTENTS, "", frozenset(["n"]))


def merge_of(cuts: int, spans: list[tuple[int, int]]) -> Merge:
    """One file per cut with a slice for each group; cut c holds the pane that starts at 10 c."""
    parts = []
    for cut in range(1, cuts + 1):
        slices = tuple(Slice(f"f{cut}", group, 100 * group, 100, 0, 5) for group in range(GROUPS))
        files = PartialFiles(CONTENTS, cut, slices, (10 * cut,), ())
        parts.append(Part(FEED, files, np.array([10 * cut])))
    return Merge(b"", "s", tuple(parts), tuple(spans))


def placed_on(*executors: str) -> KeyGroups:
    return KeyGroups.beginning(GROUPS).with_executors(executors)


def work(groups: KeyGroups, merge: Merge) -> dict[tuple[int, str], tuple[set[str], tuple[tuple[int, int], ...]]]:
    routed = groups.routed(by_group(merge, groups.home), merge)
    return {(one.group, one.home): ({piece.file for _, piece in one.slices}, one.spans) for one in routed}


def move(groups: KeyGroups, group: int, target: str) -> list[Move]:
    return [Move(group, groups.home(group, 99), target, 1.0)]


def other(groups: KeyGroups, group: int) -> str:
    return next(one for one in sorted(groups.alive) if one != groups.home(group, 99))


@pytest.mark.parametrize("strategy", Strategy)
def test_what_each_strategy_leaves_where(strategy: Strategy) -> None:
    groups = placed_on("1", "2")
    source, target = groups.home(0, 1), other(groups, 0)
    moved = groups.moved(move(groups, 0, target), strategy, cut=3, boundary=30)
    merge = merge_of(4, [(10, 40), (30, 50)])
    found = {key: value for key, value in work(moved, merge).items() if key[0] == 0}
    old, new = {"f1", "f2"}, {"f3", "f4"}
    both = ((10, 40), (30, 50))
    assert (
        found
        == {
            Strategy.INSTANT: {(0, source): (old, both), (0, target): (new, both)},
            Strategy.DISRUPTIVE: {(0, target): (old | new, both)},
            Strategy.SMOOTH: {(0, source): (old | new, ((10, 40),)), (0, target): (new, ((30, 50),))},
        }[strategy]
    )


MOVES = st.lists(
    st.tuples(st.integers(0, GROUPS - 1), st.sampled_from("123"), st.sampled_from(Strategy), st.integers(1, 6)),
    max_size=4,
)


@given(MOVES, st.sampled_from([("1", "2", "3"), ("1", "2"), ("3",), ("4", "2")]))
def test_each_window_gets_each_partial_once(moves: list[tuple[int, str, Strategy, int]], left: tuple[str, ...]) -> None:
    """Whatever moved, and whoever was lost: living executors merge each cut of a window for it once."""
    groups = placed_on("1", "2", "3")
    for group, target, strategy, cut in sorted(moves, key=lambda one: one[3]):
        if groups.home(group, 99) != target:
            groups = groups.moved(move(groups, group, target), strategy, cut, 10 * cut)
    groups = groups.with_executors(left)
    spans = [(start, start + 30) for start in range(10, 60, 10)]
    merge = merge_of(6, spans)
    found = work(groups, merge)
    assert {home for _, home in found} <= set(left)
    for group in range(GROUPS):
        for start, end in spans:
            inside = [
                file
                for (g, _), (files, mine) in found.items()
                if g == group and (start, end) in mine
                for file in files
                if start <= 10 * int(file[1:]) < end
            ]
            assert sorted(inside) == [f"f{cut}" for cut in range(1, 7) if start <= 10 * cut < end]


def test_a_drained_executor_gets_empty_and_a_new_one_is_used() -> None:
    groups = placed_on("1", "2").measured(dict.fromkeys(range(GROUPS), 100))
    kept, moves = groups.drain("1")
    moved = kept.moved(moves, Strategy.INSTANT, 5, 50)
    assert {moved.home(group, 5) for group in range(GROUPS)} == {"2"}
    assert {moved.home(group, 4) for group in range(GROUPS)} == {"1", "2"}
    joined = moved.with_executors(("1", "2", "3"))
    assert {one.target for one in joined.balance(Flux())} == {"3"}


def test_files_survive_as_json(tmp_path: Path) -> None:
    files = merge_of(1, []).parts[0].files
    assert PartialFiles.from_json(files.to_json()) == files
