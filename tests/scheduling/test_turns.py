"""What is learned of queries from their progress, when they are held, and that slots and waits keep their bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.model.time import MICROS_PER_SECOND as S
from transom.model.window import tumbling
from transom.scheduling.policies import POLICIES, Columns, Policy, bounded, policy_named
from transom.scheduling.turns import BatchDone, QueryEstimate, Turns

PROGRESS = {
    "batchId": 7,
    "timestamp": "2024-01-01T00:00:03.500Z",
    "durationMs": {"addBatch": 300, "triggerExecution": 420},
    "numInputRows": 12,
    "eventTime": {
        "avg": "2024-01-01T00:00:01.000Z",
        "max": "2024-01-01T00:00:02.000Z",
        "min": "2024-01-01T00:00:00.000Z",
        "watermark": "2023-12-31T23:59:59.000Z",
    },
    "stateOperators": [{"numRowsRemoved": 3}, {"numRowsRemoved": 4}],
}
NEW_YEAR = 1_704_067_200 * S


def test_a_progress_as_spark_gives_it():
    assert BatchDone.of(PROGRESS) == BatchDone(
        batch=7,
        triggered=NEW_YEAR + 3 * S + S // 2,
        rows=12,
        newest=NEW_YEAR + 2 * S,
        watermark=NEW_YEAR - S,
        results=7,
    )


def test_a_progress_without_a_watermark_or_before_there_is_one():
    bare = BatchDone.of({key: PROGRESS[key] for key in ("batchId", "timestamp", "durationMs", "numInputRows")})
    assert (bare.newest, bare.watermark, bare.results) == (None, None, 0)
    first = BatchDone.of({**PROGRESS, "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}})
    assert (first.newest, first.watermark) == (None, None)


class Feed:
    """A query over rows that come at an even pace, whose batches are as the gate wants them.

    Event time is wall time less `lag`, times `pace`; the watermark is 1 s behind.
    """

    def __init__(self, window: int = 10, lag: int = 3 * S, pace: float = 1.0, rate: float = 100.0, took: int = S // 5):
        self.estimate = QueryEstimate(tumbling(window * S), 10 * S)
        self.lag, self.pace, self.rate, self.took = lag, pace, rate, took
        self.read, self.batch, self.watermark = 1_000 * S, 0, None
        self.newest = None
        self.done = None

    def event_time(self, wall: int) -> int:
        return 1_000 * S + round((wall - 1_000 * S) * self.pace) - self.lag

    def arrive(self, now: int) -> None:
        """Fix a batch at `now`, and stand at the gate."""
        self.fixed = now
        self.estimate.arrived(self.done, now)

    def run(self, now: int) -> int:
        """Run it; return when it is done."""
        rows = round(self.rate * (self.fixed - self.read) / S)
        end = now + self.took
        newest = self.event_time(self.fixed) if rows else None
        self.done = BatchDone(self.batch, self.fixed, rows, newest, self.watermark)
        self.estimate.started(now)
        self.estimate.finished(self.batch, end)
        self.newest = newest or self.newest
        self.watermark = self.newest - S
        self.read, self.batch = self.fixed, self.batch + 1
        return end

    def unheld(self, seconds: int) -> int:
        """Run as Spark does, batch after batch; return the time."""
        now = self.read + S // 10
        until = now + seconds * S
        while now < until:
            self.arrive(now)
            now = self.run(now)
        self.arrive(now)
        return now


def test_the_next_watermark_is_foretold_from_past_ones():
    feed = Feed()
    now = feed.unheld(55)
    end = feed.estimate.watermarks.window.first_end(feed.event_time(now) - S)
    truth = end + S + feed.lag
    assert truth > now
    assert feed.estimate.expected() == pytest.approx(truth, abs=0.3 * S)
    view = feed.estimate.view("q", now)
    assert view.deadline == end
    assert feed.estimate.rate * S == pytest.approx(100, rel=0.05)
    assert view.slack == pytest.approx(view.expected + 10 * S - now - view.total)
    assert view.total > view.run, "the watermark comes with the batch after the held one"


def test_a_batch_that_brings_results_is_due_at_once():
    feed = Feed()
    now = feed.unheld(55)
    while feed.estimate.expected() > now:  # up to the batch that has read the sweeping watermark
        now = feed.run(now)
        feed.arrive(now)
    assert policy_named("klink")([feed.estimate.view("q", now)], now) == ["q"]
    view = feed.estimate.view("q", now)
    assert view.expected <= now
    assert view.total == view.run


def test_klink_holds_a_batch_until_shortly_before_its_watermark():
    feed = Feed()
    now = feed.unheld(51)
    while feed.estimate.expected() < now + 4 * S:
        now = feed.run(now)
        feed.arrive(now)
    turns = Turns(policy_named("klink"), 1)
    turns.arrived("q", feed.estimate)
    expected = feed.estimate.expected()
    assert turns.next(now) == []
    assert turns.pending
    moments = range(now, round(expected) + S, S // 50)
    first = next(moment for moment in moments if turns.next(moment) == ["q"])
    assert expected - 3 * S < first <= expected
    assert turns.runs("q")


@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - {"klink"}))
def test_other_policies_hold_nothing_while_a_slot_is_free(policy):
    feed = Feed()
    now = feed.unheld(52)
    turns = Turns(policy_named(policy), 1)
    turns.arrived("q", feed.estimate)
    assert turns.next(now) == ["q"]


@settings(max_examples=40, deadline=None)
@given(pace=st.floats(2.0, 1_000.0), window=st.integers(1, 60), seconds=st.integers(1, 30), hold=st.integers(0, 2 * S))
def test_old_data_is_never_held_back(pace, window, seconds, hold):
    """Read faster than it happened, whatever the batches were held for before."""
    feed = Feed(window=window, pace=pace, took=S // 5 + hold)
    now = feed.unheld(seconds)
    assert feed.estimate.expected() <= now
    assert policy_named("klink")([feed.estimate.view("q", now)], now) == ["q"]


def test_after_an_outage_nothing_is_held_for_a_while():
    feed = Feed(window=20)
    feed.unheld(60)
    feed.lag += 100 * S
    now = feed.unheld(101)
    assert feed.estimate.expected() <= now
    now = feed.unheld(10)
    while feed.estimate.expected() <= now:
        now = feed.run(now)
        feed.arrive(now)
    end = feed.estimate.watermarks.window.first_end(feed.event_time(now) - S)
    assert feed.estimate.expected() == pytest.approx(end + S + feed.lag, abs=0.3 * S)


@pytest.mark.parametrize("step", [1, 5])
def test_a_source_in_portions_is_expected_at_its_earliest(step):
    """Rows come in files of `step` seconds, which are there when their last row has happened."""
    estimate = QueryEstimate(tumbling(20 * S), S)
    for batch in range(9):
        now = 1_000 * S + batch * step * S + batch % 3 * step * S // 4  # found sooner or later
        newest = 1_000 * S + batch * step * S
        estimate.arrived(BatchDone(batch, now, 100, newest, newest - (step + 2) * S if batch else None), now)
    end = estimate.watermarks.window.first_end(newest - 2 * S)
    assert estimate.expected() == pytest.approx(max(end + 2 * S, now), abs=0.1 * S)


def test_costs_are_learned_from_rows_that_are_known_one_batch_later():
    estimate = QueryEstimate(None, S)
    for batch in range(40):
        estimate.arrived(BatchDone(batch - 1, batch * S, 1_000 * batch) if batch else None, batch * S)
        estimate.started(batch * S)
        estimate.finished(batch, batch * S + 100_000 + 10 * 1_000 * (batch + 1))
    assert float(estimate.costs.costs.fixed) == pytest.approx(0.1, rel=0.15)
    assert float(estimate.costs.costs.row) == pytest.approx(1e-5, rel=0.1)


def test_progress_that_was_seen_or_is_missing_changes_nothing():
    estimate = QueryEstimate(tumbling(10 * S), S)
    done = BatchDone(0, 5 * S, 100, 4 * S)
    estimate.arrived(done, 6 * S)
    rate = estimate.rate
    estimate.arrived(done, 7 * S)
    estimate.arrived(None, 8 * S)
    assert estimate.rate == rate
    assert estimate.expected() == 8 * S, "nothing is known: due when it stands at the gate"


def test_slots_and_who_leaves():
    turns = Turns(policy_named("fcfs"), 2)
    for place, name in enumerate("abcd"):
        estimate = QueryEstimate(None, S)
        estimate.arrived(None, place)
        turns.arrived(name, estimate)
    assert turns.next(10) == ["a", "b"]
    assert not turns.pending
    assert turns.next(11) == []
    turns.left("c")
    turns.left("a")
    assert turns.pending
    assert turns.next(12) == ["d"]
    assert [turns.runs(name) for name in "abcd"] == [False, True, False, True]
    with pytest.raises(DefinitionError, match="slots"):
        Turns(policy_named("fcfs"), 0)


def test_fair_lets_all_run_at_once():
    turns = Turns(policy_named("fair"), 1)
    for name in "abc":
        turns.arrived(name, QueryEstimate(None, S))
    assert sorted(turns.next(1)) == ["a", "b", "c"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_batch_waits_longer_than_the_bound(data):
    """Under a policy that always prefers some and never wants others; ticks of a second, jobs of at most `job`."""
    count, slots = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))
    longest, job = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 6))
    bound = (longest + 1 + math.ceil(count / slots) * job) * S
    never = data.draw(st.floats(0, 1))
    random = np.random.default_rng(data.draw(st.integers(0, 1_000)))

    def hostile(streams: Columns, now: float) -> np.ndarray:
        places = np.arange(len(streams.ran_at), dtype=float)
        return np.where(places >= never * len(places), np.inf, places)

    turns = Turns(bounded(Policy("hostile", hostile), longest * S), slots)
    estimates = {f"q{number}": QueryEstimate(None, S) for number in range(count)}
    since: dict[str, int] = {}
    ends: dict[str, int] = {}
    for now in range(S, 300 * S, S):
        for name in [name for name, end in ends.items() if end <= now]:
            del ends[name]
            turns.left(name)
        for name in estimates.keys() - since.keys() - ends.keys():
            estimates[name].arrived(None, now)
            turns.arrived(name, estimates[name])
            since[name] = now
        for name in turns.next(now):
            waited = now - since.pop(name)
            assert waited <= bound
            ends[name] = now + S * int(random.integers(1, job + 1))
        assert len(ends) <= slots
        assert all(now - one <= bound for one in since.values())


def test_a_view_is_complete():
    """Policies find what they go by; nothing but memory is left at its default."""
    feed = Feed()
    now = feed.unheld(30)
    view = feed.estimate.view("q", now)
    assert view.ran_at < view.waiting_since <= now
    assert 0 < view.fixed <= view.run <= view.total
    assert view.held or view == view._replace(held=False)
    assert view.limit == 10 * S
