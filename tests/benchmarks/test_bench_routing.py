import numpy as np
from benchmarks.alternating import alternate, direct
from benchmarks.wide_area_sim import Links, Phase, simulate
from benchmarks.wide_problems import keyed, paper, printed, scaled
from tests.widearea.worlds import flow, problem_of

from transom.widearea.objectives import Worth
from transom.widearea.problem import Column
from transom.widearea.timing import timings
from transom.widearea.topology import Topology


def test_the_printed_rule_never_leaves_direct_paths():
    worth = Worth(paper(3, printed, 0.2), "frequencies")
    found, straight = (f(worth, *rest) for f, rest in ((alternate, ["printed"]), (direct, [])))
    assert [column.parents for column in found] == [column.parents for column in straight]


def test_direct_paths_have_their_best_intervals_also_where_the_solver_is_not_done(monkeypatch):
    worth = Worth(scaled(paper(3, keyed, 0.2), 1.0 + 1e-9), "goodput")
    best = sum(map(worth.value, direct(worth)))
    monkeypatch.setattr("benchmarks.alternating.whole", lambda *_: None)
    found = direct(worth)
    assert len(found) == 20
    assert (worth.problem.use(found) <= worth.problem.capacity * (1 + 1e-6)).all()
    assert best * 0.8 <= sum(map(worth.value, found)) <= best * (1 + 1e-6)


def test_links_serve_one_after_the_other_at_the_bandwidth_of_each_second():
    links = Links(np.array([[10.0], [0.0], [5.0], [5.0]]))
    assert links.send(0, 0.5, 5.0) == 1.0
    assert links.send(0, 0.0, 5.0) == 3.0
    assert links.send(0, 0.0, 9.0) == np.inf


def test_simulated_latencies_are_as_predicted_where_nothing_varies():
    topology = Topology(("A", "B", "C"), dict.fromkeys([("A", "B"), ("B", "C"), ("A", "C")], 1_000.0))
    problem = problem_of(topology, (flow("f", {"A": 0.0, "B": 0.0}, "C", fixed=500.0, tick=1.0),))
    columns, phase = [Column(0, (1, 2), 4)], {0: 3}
    rates = np.broadcast_to(problem.speed.ravel(), (200, 9))
    took = simulate(problem, [Phase(0, columns, phase)], rates, 0).latency[0]
    assert abs(np.median(took) - timings(problem, columns, phase)[0].latency) < 0.1
