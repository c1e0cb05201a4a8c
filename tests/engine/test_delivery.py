"""Delivery knows which sinks wait, fail or are slow without looking at all of them."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from transom.engine.loop.delivery import LAST_RETRY, Delivery, ResultBatch
from transom.model.time import MICROS_PER_SECOND, ManualClock
from transom.sinks.base import WindowResults
from transom.sinks.outlets import Outlets

NOON = 1_700_000_000_000_000
QUERIES = ("a", "b", "c")
ROWS = pa.table({"n": [1]})
ALLOWED = 2 * ROWS.nbytes


class Sometimes:
    """A sink that fails while it is told to."""

    def __init__(self, key):
        self.key = key
        self.fails = False
        self.taken = []

    def describe(self):
        return self.key

    def write(self, results):
        if self.fails:
            raise OSError("no route")
        self.taken.append(results.cut)


class Later:
    """In the place of threads: what is submitted is done when it is asked for."""

    def __init__(self):
        self.work = []

    def submit(self, function, *arguments):
        self.work.append((function, arguments))

    def do(self, place):
        if self.work:
            function, arguments = self.work.pop(place % len(self.work))
            function(*arguments)


steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(QUERIES)),
    st.tuples(st.just("write"), st.integers(0, 5)),
    st.tuples(st.just("fail"), st.sampled_from([f"{query}{n}" for query in QUERIES for n in (1, 2)])),
    st.tuples(st.just("mend"), st.sampled_from([f"{query}{n}" for query in QUERIES for n in (1, 2)])),
    st.tuples(st.just("collect"), st.none()),
    st.tuples(st.just("wait"), st.none()),
    st.tuples(st.just("remove"), st.sampled_from(QUERIES)),
)


@given(st.lists(steps, max_size=40))
def test_what_is_told_is_what_a_look_at_all_sinks_finds(taken):
    sinks = {f"{query}{n}": Sometimes(f"{query}{n}") for query in QUERIES for n in (1, 2)}
    released = []
    clock = ManualClock(NOON)
    outlets = {query: Outlets.of([sinks[f"{query}1"], sinks[f"{query}2"]]) for query in QUERIES}
    delivery = Delivery(outlets, clock, lambda: None, 1, ALLOWED, release=lambda sink: released.append(sink.key))
    later = delivery._threads = Later()
    sent = dict.fromkeys(QUERIES, 0)
    left = set()
    for step, what in taken:
        if step == "send" and what not in left:
            sent[what] += 1
            delivery.send(ResultBatch(WindowResults(what, sent[what], ROWS), 1, NOON))
        elif step == "write":
            later.do(what)
        elif step in ("fail", "mend"):
            sinks[what].fails = step == "fail"
        elif step == "collect":
            delivery.collect()
        elif step == "wait":
            clock.advance(MICROS_PER_SECOND)
        elif step == "remove" and what not in left:
            left.add(what)
            delivery.remove(what)
        lanes = list(delivery._all)
        assert delivery.busy == any(lane.busy for lane in lanes)
        assert delivery.writing() == list(dict.fromkeys(delivery.writing()))
        assert set(delivery.writing()) == {lane.query for lane in lanes if lane.busy}
        full = [lane for lane in lanes if sum(b.results.table.nbytes for b in lane.waiting) > ALLOWED]
        staying = [lane for lane in full if not lane.leaving]
        failed = {(lane.query, lane.sink.key) for lane in staying if lane.error is not None}
        assert {(query, sink.key) for query, sink, _ in delivery.overfull()} == failed
        assert delivery.slow().keys() == {lane.query for lane in staying if lane.error is None}
        for tries in (1, 2):
            tried = (lane.error is not None and lane.failures >= tries for lane in lanes if lane.waiting)
            assert delivery.stuck(tries) == all(tried)
    for sink in sinks.values():
        sink.fails = False
    for _ in range(50):
        clock.advance(LAST_RETRY)
        delivery.collect()
        while later.work:
            later.do(0)
    delivery.collect()
    assert not delivery.busy
    assert delivery.waiting() == []
    for query in QUERIES:
        for n in (1, 2):
            sink = sinks[f"{query}{n}"]
            assert sink.taken == list(range(1, len(sink.taken) + 1)), "each once, in order"
            assert query in left or len(sink.taken) == sent[query]
            assert (sink.key in released) == (query in left)
