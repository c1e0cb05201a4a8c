"""When a stream has caught up, how long it takes until then, and which latencies count."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from transom.engine.loop.catchup import OVER, CatchUp
from transom.engine.loop.delivery import Delivered, ResultBatch
from transom.engine.loop.metrics import Metrics
from transom.engine.streams.arriving import rows_left
from transom.sinks.base import WindowResults
from transom.sources.base import Cut

SECOND = 1_000_000


def test_it_has_caught_up_at_the_first_look_that_finds_no_more_than_one_micro_batch_takes():
    at = CatchUp()
    at.looked(5, more=True)
    assert at.since is None
    at.looked(7, more=False)
    at.looked(9, more=True)
    at.looked(11, more=False)
    assert at.since == 7, "what comes later is live, also when it is too much"


def test_nothing_is_known_at_first_and_while_the_rest_grows():
    at = CatchUp()
    assert at.time_left is None
    at.left(0, 100)
    at.left(SECOND, 100)
    assert at.time_left is None
    at.left(2 * SECOND, 120)
    at.left(3 * SECOND, 130)
    assert at.time_left is None


def test_the_first_micro_batch_is_not_counted_as_it_is_slow():
    at = CatchUp()
    at.left(0, 1_000)
    at.left(100 * SECOND, 900)
    assert at.time_left is None
    at.left(101 * SECOND, 800)
    assert at.time_left == 8 * SECOND


def test_the_speed_is_that_of_the_last_seconds():
    at = CatchUp()
    rows = 100_000
    for second in range(40):
        rows -= 10 if second < 20 else 1_000
        at.left(second * SECOND, rows)
    assert at.time_left == rows * SECOND // 1_000
    assert len(at._levels) <= OVER // SECOND + 2


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, 60))
def test_at_a_steady_speed_it_is_right(start, step, seconds):
    at = CatchUp()
    at.left(-SECOND, start + 3 * step)
    for second in range(3):
        at.left(second * seconds * SECOND, start + (2 - second) * step)
    assert abs(at.time_left - start * seconds * SECOND / step) <= 1


class Stream:
    def __init__(self, name: str, query: str, child: Stream | None = None) -> None:
        self.name, self.seen = name, SimpleNamespace(more=True)
        self.state = SimpleNamespace(queries={query: None})
        self.readers = [] if child is None else [SimpleNamespace(child=child)]


def test_latencies_count_from_when_the_stream_and_those_that_feed_it_have_caught_up():
    days = Stream("days", "of days")
    hours = Stream("hours", "of hours", days)
    metrics = Metrics(0, {"hours": hours, "days": days})

    def latencies(query: str, ingested: int) -> int:
        batch = ResultBatch(WindowResults(query, 1, pa.table({})), 1, ingested)
        metrics.delivered(Delivered(batch, ingested + 3, "sink", by_all=True))
        return len(metrics._query(query).latencies)

    days.seen.more = False
    metrics.looked(days, 10)
    metrics.looked(hours, 10)
    assert latencies("of hours", 20) == latencies("of days", 20) == 0
    hours.seen.more = False
    metrics.looked(hours, 30)
    assert latencies("of hours", 29) == latencies("of days", 29) == 0, "it waited for the application"
    assert latencies("of hours", 30) == latencies("of days", 30) == 1
    assert latencies("gone", 40) == 0, "a query that was removed meanwhile"


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 20), st.integers(0, 20))
def test_rows_are_left_beyond_what_a_source_gives_at_once(files, at_once, start):
    start = min(start, len(files))

    def cut(first: int, most: int) -> Cut:
        end = min(len(files), first + at_once)
        return Cut(end, sum(files[first:end]))

    assert rows_left(SimpleNamespace(cut=cut), start) == sum(files[start:])
