import pytest
from tests.widearea.worlds import flow, problem_of

from transom.widearea.problem import Column
from transom.widearea.timing import phases, timings
from transom.widearea.topology import INTERVALS, Topology


def test_bursts_on_a_link_keep_apart_and_latency_counts_waiting():
    topology = Topology(("A", "B"), {("A", "B"): 1_000.0})
    flows = tuple(flow(f"f{n}", {"A": 0.0}, "B", fixed=500.0, tick=1.0, job=0.1) for n in range(4))
    problem = problem_of(topology, flows)
    columns = [Column(n, (1,), 3) for n in range(4)]
    apart = phases(problem, columns, {})
    assert sorted(apart.values()) == [0, 1, 2, 3]
    assert list(timings(problem, columns, apart).values()) == [(pytest.approx(4.6), 0.0)] * 4
    together = timings(problem, columns, dict.fromkeys(range(4), 0))
    assert sorted(each.latency for each in together.values()) == pytest.approx([4.6, 5.1, 5.6, 6.1])


def test_a_relay_waits_for_all_that_it_merges():
    topology = Topology(("A", "B", "C"), {("A", "B"): 1_000.0, ("B", "C"): 500.0, ("A", "C"): 1.0})
    problem = problem_of(topology, (flow("f", {"A": 0.0, "B": 0.0}, "C", fixed=500.0, tick=1.0, merging=0.25),))
    column = Column(0, (1, 2), 4)
    (timing,) = timings(problem, [column], {0: 0}).values()
    assert timing == pytest.approx((5 + 0.5 + 0.25 + 1.0 + 0.25, 0.5 + 0.25))


def test_a_link_that_is_first_hop_of_one_and_last_of_another_is_served_in_order():
    topology = Topology(("A", "B", "C"), dict.fromkeys([("A", "B"), ("B", "C"), ("A", "C")], 1_000.0))
    flows = (flow("x", {"A": 0.0}, "C", fixed=500.0, tick=1.0), flow("y", {"A": 0.0}, "B", fixed=250.0, tick=1.0))
    problem = problem_of(topology, flows)
    columns = [Column(0, (1,), 4), Column(1, (1,), 4)]
    assert [each.latency for each in timings(problem, columns, {0: 0, 1: 1}).values()] == pytest.approx([6.0, 5.25])


def test_of_what_is_ready_at_once_the_tightest_limit_goes_first_then_what_leaves_often_then_what_is_small():
    topology = Topology(("A", "B"), {("A", "B"): 1_000.0})

    def latencies(*given):
        """Return what flows take without their intervals; given limit, ticks and bytes of each, all at one tick."""
        flows = [
            flow(f"f{n}", {"A": 0.0}, "B", fixed=size, tick=1.0, limit=limit)
            for n, (limit, _, size) in enumerate(given)
        ]
        columns = [Column(n, (1,), INTERVALS.index(ticks)) for n, (_, ticks, _) in enumerate(given)]
        found = timings(problem_of(topology, tuple(flows)), columns, dict.fromkeys(range(len(given)), 0))
        return pytest.approx([found[n].latency - ticks for n, (_, ticks, _) in enumerate(given)])

    assert latencies((9.0, 5, 200.0), (2.0, 5, 300.0)) == [0.5, 0.3]
    assert latencies((9.0, 10, 100.0), (9.0, 5, 300.0)) == [0.4, 0.3]
    assert latencies((9.0, 5, 300.0), (9.0, 5, 100.0)) == [0.4, 0.1]
