"""Where key groups live, and which executor merges what: no Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.engine.cluster.files import PartialFiles, Slice
from transom.engine.cluster.groups import KeyGroups
from transom.engine.cluster.merges import Merge, StoreFiles
from transom.engine.cluster.messages import AskedSessions, Feed, MergeRequest
from transom.engine.partials.contents import Contents, Origin
from transom.model.time import MAX_TIME, MIN_TIME
from transom.placement.balance import Flux, Move
from transom.placement.migration import Strategy
from transom.windows.aggregates.base import state_key

GROUPS = 4
COUNTED = state_key("count.1")
CONTENTS = Contents(Origin("b", ("k",)), (COUNTED,))
FEED = Feed(CONTENTS, "", frozenset([COUNTED]))


def merge_of(cuts: int, spans: list[tuple[int, int]]) -> Merge:
    """One file per cut with a slice for each group; cut c holds the pane that starts at 10 c."""
    parts = []
    for cut in range(1, cuts + 1):
        slices = tuple(Slice(f"f{cut}", group, 100 * group, 100, 0, 5) for group in range(GROUPS))
        files = PartialFiles(CONTENTS, cut, slices, ((10 * cut,),), ((),))
        parts.append(StoreFiles(FEED, files, np.array([10 * cut])))
    return Merge(MergeRequest(b""), "s", tuple(parts), tuple(spans))


def placed_on(*executors: str) -> KeyGroups:
    return KeyGroups.beginning(GROUPS).with_executors(executors)


def work(groups: KeyGroups, merge: Merge) -> dict[tuple[int, str], tuple[set[str], tuple[tuple[int, int], ...]]]:
    routed = groups.routed(merge.by_group(groups.home), merge)
    return {(one.group, one.home): ({piece.file for _, piece in one.slices}, one.spans) for one in routed}


def move(groups: KeyGroups, group: int, target: str) -> list[Move]:
    return [Move(group, groups.home(group), target, 1.0)]


def other(groups: KeyGroups, group: int) -> str:
    return next(one for one in sorted(groups.alive) if one != groups.home(group))


@pytest.mark.parametrize("strategy", Strategy)
def test_who_merges_what_under_each_strategy(strategy: Strategy) -> None:
    groups = placed_on("1", "2")
    source, target = groups.home(0), other(groups, 0)
    moved = groups.moved(move(groups, 0, target), strategy, cut=3, boundary=30)
    merge = merge_of(4, [(10, 40), (30, 50)])
    found = {key: value for key, value in work(moved, merge).items() if key[0] == 0}
    old, new = {"f1", "f2"}, {"f3", "f4"}
    both = ((10, 40), (30, 50))
    assert (
        found
        == {
            Strategy.INSTANT: {(0, source): (old | new, both)},
            Strategy.DISRUPTIVE: {(0, target): (old | new, both)},
            Strategy.SMOOTH: {(0, source): (old | new, ((10, 40),)), (0, target): (new, ((30, 50),))},
        }[strategy]
    )
    there = moved.arrived([0])
    assert there.home(0) == target, "instant: from the moment on that the target has read what there is"
    assert not there.arriving


def test_sessions_of_a_group_that_moves_smoothly_are_divided_by_their_beginning() -> None:
    groups = placed_on("1", "2")
    source, target = groups.home(0), other(groups, 0)
    moved = groups.moved(move(groups, 0, target), Strategy.SMOOTH, cut=3, boundary=30)

    def routed(*starts: tuple[int, int], write: str = "") -> dict[str, tuple[tuple[int, int], int]]:
        sessions = tuple(AskedSessions(str(gap), b"", each) for gap, each in enumerate(starts))
        merge = replace(merge_of(4, []), request=MergeRequest(b"", sessions=sessions, write=write))
        found = moved.routed(merge.by_group(moved.home), merge)
        return {one.home: (one.starts, len(one.slices)) for one in found if one.group == 0}

    early, late = {source: ((MIN_TIME, 30), 4)}, {target: ((30, MAX_TIME), 2)}
    assert routed((0, 29)) == early
    assert routed((30, 40), (35, 50)) == late
    assert routed((0, 29), (30, 40)) == routed((0, 30)) == early | late
    assert routed((0, 40), write="file") == {source: ((MIN_TIME, MAX_TIME), 4)}, "the source has all to write"


def test_a_group_stays_whose_target_cannot_read_it() -> None:
    groups = placed_on("1", "2")
    moved = groups.moved(move(groups, 0, other(groups, 0)), Strategy.INSTANT, 3, 30)
    assert moved.stayed([0]) == groups


@pytest.mark.parametrize("lost", ["source", "target", "both"])
def test_an_executor_is_lost_while_a_group_moves_instantly(lost: str) -> None:
    groups = placed_on("1", "2", "3")
    source, target = groups.home(0), other(groups, 0)
    moving = groups.moved(move(groups, 0, target), Strategy.INSTANT, 3, 30)
    gone = {"source": {source}, "target": {target}, "both": {source, target}}[lost]
    left = moving.with_executors({"1", "2", "3"} - gone)
    assert not left.arriving
    assert left.home(0) == {"source": target, "target": source}.get(lost, left.home(0))
    assert left.home(0) not in gone
    assert left.arrived([0]).home(0) == left.home(0), "what the target's job gives then changes nothing"


def test_a_group_does_not_move_to_an_executor_that_will_go() -> None:
    groups = placed_on("1", "2", "3")
    home, target = groups.home(0), other(groups, 0)
    moving = groups.moved(move(groups, 0, target), Strategy.INSTANT, 3, 30)
    assert moving.with_executors(["1", "2", "3"], leaving=[target]).arrived([0]).home(0) == home


MOVES = st.lists(
    st.tuples(st.integers(0, GROUPS - 1), st.sampled_from("123"), st.sampled_from(Strategy), st.integers(1, 6)),
    max_size=4,
)


@given(
    MOVES,
    st.sampled_from([("1", "2", "3"), ("1", "2"), ("3",), ("4", "2")]),
    st.sampled_from([(), ("1",), ("1", "2"), ("1", "2", "3")]),
    st.booleans(),
)
def test_each_window_gets_each_partial_once(
    moves: list[tuple[int, str, Strategy, int]], left: tuple[str, ...], leaving: tuple[str, ...], arrive: bool
) -> None:
    """Whatever moved, and whoever was lost or will go: living executors merge each cut of a window for it once."""
    groups = placed_on("1", "2", "3")
    for group, target, strategy, cut in sorted(moves, key=lambda one: one[3]):
        if groups.home(group) != target:
            groups = groups.moved(move(groups, group, target), strategy, cut, 10 * cut)
    groups = groups.with_executors(left, leaving)
    emptying = groups.emptying()
    groups = groups.moved(emptying, Strategy.INSTANT, 7, 70)
    if arrive:
        groups = groups.arrived(range(GROUPS))
        stay = set(left) - set(leaving)
        assert not stay or {groups.home(group) for group in range(GROUPS)} <= stay
    spans = [(start, start + 30) for start in range(10, 60, 10)]
    found = work(groups, merge_of(6, spans))
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


def test_an_executor_that_will_go_gets_empty_and_a_new_one_is_used() -> None:
    groups = placed_on("1", "2").measured(dict.fromkeys(range(GROUPS), 100), 10)
    going = groups.with_executors(("1", "2"), leaving=("1",))
    assert [going.home(group) for group in range(GROUPS)] == [groups.home(group) for group in range(GROUPS)]
    moving = going.moved(going.emptying(), Strategy.INSTANT, 5, 50)
    assert moving.emptying() == [], "they are on their way"
    assert {moving.home(group) for group in range(GROUPS)} == {"1", "2"}
    moved = moving.arrived(range(GROUPS))
    assert {moved.home(group) for group in range(GROUPS)} == {"2"}
    joined = moved.with_executors(("1", "2", "3"), leaving=("1",))
    assert {one.target for one in joined.balance(Flux())} == {"3"}
    assert placed_on("1").with_executors(("1",), leaving=("1",)).emptying() == [], "there is no other place"


def test_loads_follow_the_rows_of_groups() -> None:
    groups = placed_on("1", "2")
    mine = groups.assignment.of("1")
    busy = groups.measured(dict.fromkeys(mine, 1000) | dict.fromkeys(groups.assignment.of("2"), 10), 10)
    (first, *_) = busy.balance(Flux())
    assert (first.source, first.target) == ("1", "2")
    assert first.load == pytest.approx(100), "rows per second"
    pinned = busy.moved([first], Strategy.INSTANT, 1, 10)
    assert first.group not in {one.group for one in pinned.balance(Flux())}


def test_files_survive_as_json(tmp_path: Path) -> None:
    files = merge_of(1, []).parts[0].files
    assert PartialFiles.from_json(files.to_json()) == files
