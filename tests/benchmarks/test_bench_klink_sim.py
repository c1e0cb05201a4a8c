import numpy as np
import pytest
from benchmarks import klink_sim

from transom.simulation.world import load


@pytest.mark.parametrize("level", klink_sim.LOADS)
@pytest.mark.parametrize("workload", klink_sim.WORKLOADS)
def test_the_offered_load_is_what_its_name_says(workload: str, level: str) -> None:
    streams = klink_sim.streams_of(workload, level)
    assert load(streams, klink_sim.CORES) == pytest.approx(klink_sim.LOADS[level][1])
    assert all(stream.row > 0 for stream in streams)


def test_lost_means_worse_in_every_run() -> None:
    one = np.array([1.0, 1.1, 0.9])
    assert klink_sim.lost(one + 0.1, one, less_is_better=True)
    assert not klink_sim.lost(one - 0.1, one, less_is_better=True)
    assert klink_sim.lost(one - 0.1, one, less_is_better=False)
    assert not klink_sim.lost(one + np.array([0.3, -0.2, 0.1]), one, less_is_better=True)
    assert not klink_sim.lost(one, one, less_is_better=True)


def test_klink_wins_at_a_high_load() -> None:
    levels = {"load95": klink_sim.streams_of("ysb", "load95")}
    outcomes = klink_sim.simulate(levels, ("klink", "fcfs", "fair"), range(2), 60, 30)["load95"]
    found = {policy: klink_sim.figures_of(outcome) for policy, outcome in outcomes.items()}
    for other in ("fcfs", "fair"):
        assert found["klink"]["mean_s"].mean() < 0.6 * found[other]["mean_s"].mean()
        assert found["klink"]["within_share"].mean() > found[other]["within_share"].mean()


def test_the_samples_over_time_have_the_means_that_are_reported() -> None:
    found = klink_sim.simulate({"one": klink_sim.streams_of("ysb", "load70")}, ["klink", "fair"], range(2), 40, 20)
    for outcome in found["one"].values():
        drawn = klink_sim.sampled(outcome)
        assert drawn.memory.mean(axis=1) == pytest.approx(outcome.memory)
        assert drawn.cores.mean(axis=1) == pytest.approx(outcome.busy, rel=0.1)  # looked at now and then
        assert 0 <= drawn.cores.min() <= drawn.cores.max() <= 1
        assert not np.isnan(drawn.latencies).any()
