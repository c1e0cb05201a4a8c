"""What the scheduler decides, on streams that are told what to say: no Spark, no clock."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from fake_streams import NOON, SECOND, FakeStream, fake, live, scheduler, view
from hypothesis import given
from hypothesis import strategies as st

from transom.engine.control.estimates import UNSTATED
from transom.engine.control.scheduler import VIEWED, Scheduler
from transom.engine.streams.sending import Elsewhere
from transom.model.time import Micros
from transom.model.window import WindowSpec, tumbling
from transom.settings import Settings


def test_without_a_past_nothing_is_waited_for() -> None:
    stream = FakeStream("s", [tumbling("1 hour")])
    stream.source.arrivals = [NOON]
    decides = scheduler(stream)
    decides.looked([fake(stream)], NOON)
    assert view(stream, decides, NOON).expected == NOON
    assert decides.order(["s"], NOON) == ["s"]


def test_a_stream_is_left_alone_until_its_window_is_near_and_run_when_it_should_be_there() -> None:
    stream = FakeStream("s", [tumbling("10 seconds")])
    decides = scheduler(stream)
    now = live(stream, decides, 61, lag=0)
    stream.source.arrivals.append(now)
    decides.looked([fake(stream)], now)
    assert decides.order(["s"], now) == []
    assert decides.order(["s"], NOON + 70 * SECOND + SECOND // 10) == ["s"]


def test_rows_beyond_a_cut_are_not_waited_for() -> None:
    stream = FakeStream("s", [tumbling("10 seconds")])
    decides = scheduler(stream)
    now = live(stream, decides, 61, lag=0)
    stream.source.arrivals.append(now)
    stream.seen.more = True
    decides.looked([fake(stream)], now)
    assert decides.order(["s"], now) == ["s"]


def test_at_the_end_of_the_input_nothing_is_waited_for() -> None:
    stream = FakeStream("s", [tumbling("10 seconds")])
    decides = scheduler(stream)
    now = live(stream, decides, 61, lag=0)
    stream.source.arrivals.append(now)
    decides.looked([fake(stream)], now)
    decides.once = True
    assert decides.order(["s"], now) == ["s"]


def test_the_tightest_of_several_queries_decides() -> None:
    stream = FakeStream("s", [tumbling("10 seconds"), tumbling("20 seconds")], [8 * SECOND, SECOND])
    decides = scheduler(stream)
    now = live(stream, decides, 60, lag=0)
    at = now + 1
    early, late = (stream.state.first_end(query) for query in stream.queries)
    seen = view(stream, decides, at)
    wanted = min(early + 8 * SECOND, late + SECOND)
    assert abs(seen.slack + seen.total + at - wanted) < 50_000


def test_a_stream_whose_partials_leave_has_the_deadline_that_it_was_told_of_and_does_not_rest() -> None:
    here, stated = FakeStream("here", [], []), FakeStream("stated", [], [])
    decides = scheduler(here, stated)
    window = NOON + 10 * SECOND
    for stream, limit in ((here, 0), (stated, 2 * SECOND)):
        stream.leaves = True
        stream.elsewhere["fares"] = Elsewhere(window, limit, 3 * SECOND)
        stream.source.arrivals.append(NOON)
        stream.run(decides, NOON, NOON)
    (deadline,) = decides._deadlines(decides.of(fake(here), NOON), NOON)
    assert (deadline.end, deadline.limit, deadline.below) == (window, UNSTATED, 3 * SECOND)
    cost, end = decides.remains(fake(stated), NOON)
    assert (cost, end) == (decides.of(fake(stated), NOON).next_run() + 3 * SECOND, window)
    views = [decides._view(decides.of(fake(each), NOON), NOON) for each in (here, stated)]
    assert all(view.expected <= NOON for view in views)
    assert views[1].slack == views[0].slack - 8 * SECOND, "what is due first there goes first here"
    assert decides.remains(fake(FakeStream("idle", [], [])), NOON)[1] is None


def test_a_stream_has_the_deadlines_of_those_that_wait_for_it() -> None:
    child = FakeStream("c", [tumbling("10 seconds")], [SECOND], injected=True)
    parent = FakeStream("p", [tumbling("1 hour")])
    parent.readers = [SimpleNamespace(child=child, behind=2 * SECOND)]
    decides = scheduler(parent, child)
    found = decides._deadlines(decides.of(fake(parent), NOON), NOON)
    below = decides.of(fake(child), NOON).next_run()
    first, second = sorted(found, key=lambda each: each.end)
    end = tumbling("10 seconds").first_end(NOON) + 2 * SECOND
    assert (first.end, first.limit, first.below, first.period) == (end, SECOND, below, 10 * SECOND)
    assert (second.limit, second.below) == (UNSTATED, 0)
    seen = view(parent, decides, NOON)
    assert seen.total >= decides.of(fake(parent), NOON).next_run() + below, "what follows further down is still to do"
    assert seen.slack == seen.expected + seen.limit - NOON - seen.total


@pytest.mark.parametrize("policy", ["klink", "fcfs", "round_robin", "highest_rate", "streambox", "least_slack"])
def test_cuts_fit_into_a_cycle_when_there_are_others(policy: str) -> None:
    one, other = FakeStream("a", [tumbling("1 second")]), FakeStream("b", [tumbling("1 second")])
    decides = scheduler(one, other, policy=policy, cycle="500 ms", max_rows_per_cut=1_000_000)
    bound = decides.max_rows(NOON)[one.name]
    costs = decides.of(fake(one), NOON).runs.costs.costs
    assert 0.45 <= float(costs.job(bound)) <= 0.5
    alone = scheduler(one, policy=policy)
    assert alone.max_rows(NOON)[one.name] == alone._settings.max_rows_per_cut


def test_fair_runs_all_at_once_and_whole() -> None:
    streams = [FakeStream(name, [tumbling("1 second")]) for name in "abcde"]
    decides = scheduler(*streams, policy="fair")
    assert (decides.slots, decides.pools) == (5, True)
    assert decides.max_rows(NOON)[streams[0].name] == Settings.max_rows_per_cut
    assert scheduler(*streams).slots == 2


@given(st.integers(-(10**15), 10**15), st.integers(1_000, 10**9), st.integers(1, 10**9), st.integers(0, 10**9))
def test_first_end_is_the_first_one(after: int, length: int, slide: int, offset: int) -> None:
    if slide > length or length > 1_000_000 * slide:
        slide = length
    window = WindowSpec(length, slide, offset)
    end = window.first_end(after)
    assert after < end <= after + slide
    assert (end - length - window.offset) % slide == 0


def test_streams_wait_no_longer_than_the_bound() -> None:
    """Of two streams that always have rows, the one that the policy likes less still runs."""
    first, second = FakeStream("a", [tumbling("1 second")]), FakeStream("b", [tumbling("1 second")])
    decides = scheduler(first, second, policy="highest_rate", longest_wait="5 seconds")
    ran: dict[str, list[Micros]] = {"a": [], "b": []}
    for now in range(NOON, NOON + 60 * SECOND, SECOND // 2):
        for stream in (first, second):
            stream.source.arrivals.append(now)
            decides.looked([fake(stream)], now)
        name = decides.order(["a", "b"], now)[0]
        (first if name == "a" else second).run(decides, now, now)
        ran[name].append(now)
    for moments in ran.values():
        gaps = [b - a for a, b in itertools.pairwise(moments)]
        assert moments
        assert max(gaps) <= 6 * SECOND


@pytest.mark.parametrize(("once", "more", "told"), [(False, False, 1), (True, False, 0), (False, True, 0)])
def test_a_query_whose_limit_is_out_of_reach_is_named_once(once: bool, more: bool, told: int) -> None:
    """Not while it catches up, nor where all input was there from the start."""
    stream = FakeStream("s", [tumbling("3 seconds")] * 2, [SECOND // 4, 2 * SECOND])
    notes: list[str] = []
    decides = Scheduler({"s": fake(stream)}, Settings.of({}), note=notes.append)
    decides.once, stream.seen.more = once, more
    for number in range(1, 21):
        stream.source.arrivals.append(NOON + number * SECOND)
        stream.run(decides, NOON + number * SECOND, NOON + number * SECOND, took=SECOND // 2)
    assert len(notes) == told
    assert all(note.startswith("s0 has a limit of") and "own_stream" in note for note in notes)


def test_a_stream_without_a_past_is_as_urgent_as_its_oldest_row() -> None:
    """Else it would starve while others, whose watermarks are known to be late, always go first."""
    known, new = FakeStream("known", [tumbling("3 seconds")]), FakeStream("new", [tumbling("3 seconds")])
    decides = scheduler(known, new)
    now = live(known, decides, 30, lag=0)
    new.source.arrivals.append(now)
    decides.looked([fake(new)], now)
    late = now + 6 * SECOND
    known.source.arrivals.append(late)
    decides.looked([fake(known)], late)
    assert decides.order(["known", "new"], late) == ["new", "known"]


def test_what_happens_to_a_stream_is_seen_at_once_and_what_time_does_soon() -> None:
    stream = FakeStream("s", [tumbling("1 second")])
    decides = scheduler(stream)
    stream.source.arrivals.append(NOON)
    decides.looked([fake(stream)], NOON)
    decides.order(["s"], NOON)
    estimate = decides.of(fake(stream), NOON)
    first = decides._view(estimate, NOON)
    assert decides._view(estimate, NOON + VIEWED - 1) is first
    assert decides._view(estimate, NOON + VIEWED) is not first
    stream.source.arrivals.append(NOON + VIEWED)
    decides.looked([fake(stream)], NOON + VIEWED)
    assert decides._view(estimate, NOON + VIEWED).cost > first.cost
    for more in False, True:  # rows alone, and something else
        stream.seen.more = more
        assert decides._view(estimate, NOON + VIEWED) == estimate.view(
            estimate.deadlines(), decides._pace.cycle, decides._pace.load, NOON + VIEWED, decides.trigger("s")
        )
