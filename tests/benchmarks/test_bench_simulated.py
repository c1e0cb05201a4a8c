"""Questions and crowds on a simulated cluster: bounds that any simulation of it has to keep."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from benchmarks import simulated_crowds as crowds
from benchmarks.simulated_cluster import Cluster, Machines
from benchmarks.simulated_questions import Costs, Load, highest, spark, transom

CLUSTER = Cluster(executors=8, cores=2, link=1e8, driver_cores=2)
COSTS = Costs(job=0.05, question=0.001, part=0.003, byte=1e-9, plan=0.05, plan_dataset=0.005)


def load(rate: float, size: float = 16e6) -> Load:
    return Load(rate, 3.0, size, datasets=12, partitions=64)


def test_every_question_takes_what_a_job_takes_and_the_same_seed_gives_the_same() -> None:
    found = transom(CLUSTER, COSTS, load(50), groups=16)
    assert len(found) == 150
    assert min(found) > COSTS.job
    assert found == transom(CLUSTER, COSTS, load(50), groups=16)
    assert found != transom(CLUSTER, COSTS, load(50), groups=16, seed=1)


def test_spark_s_plans_and_links_bound_what_it_answers() -> None:
    for exchanges in (True, False):
        found = spark(CLUSTER, COSTS, load(2), exchanges, 8)
        assert min(found) > COSTS.plan + COSTS.plan_dataset
        assert median(spark(CLUSTER, COSTS, load(2, 64e6), exchanges, 8)) > median(found)
        # Two cores plan; a question has four datasets on average: not more than 2 / 0.07 s.
        assert highest(lambda rate, form=exchanges: spark(CLUSTER, COSTS, load(rate), form, 8), 1.0, 0.5) < 40


def test_more_load_is_slower_and_the_highest_rate_keeps_the_limit() -> None:
    slow = [median(transom(CLUSTER, COSTS, load(rate), groups=16)) for rate in (5, 1_500)]
    assert slow[0] < 0.2 < slow[1]
    assert highest(lambda rate: [rate / 100], limit=0.8, quantile=0.95) == pytest.approx(80, rel=0.1)
    assert highest(lambda rate: [9.0], limit=0.8, quantile=0.95) == 0


def test_an_exchange_takes_what_its_busiest_link_takes() -> None:
    machines = Machines(Cluster(executors=3, link=10.0), seed=0)
    assert machines.exchange(1.0, {(0, 1): 20, (0, 2): 30, (1, 2): 5, (2, 2): 900}) == pytest.approx(1 + 50 / 10)
    assert machines.exchange(1.0, {}) == 1.0


def phases(crowd: float) -> list[list[np.ndarray]]:
    """Three datasets without a crowd, three with that share of the bytes in one twentieth of the partitions."""
    even, hot = np.full(80, 1e7), np.full(80, (1 - crowd) * 1e7)
    hot[40:44] += crowd * 80e7 / 4
    return [[even] * 3, [hot] * 3]


def test_a_crowd_slows_static_groups_and_moves_elastic_ones_once() -> None:
    costs, cluster = crowds.Costs(job=0.05, task=0.005, byte=5e-9), Cluster(executors=4, cores=2)
    found = crowds.jobs(cluster, costs, phases(0.6), groups=8, later=3, seed=1)
    again = crowds.jobs(cluster, costs, phases(0.6), groups=8, later=3, seed=1)
    assert found == again
    for form in ("static", "range", "elastic"):
        calm, crowded = ([job.seconds for job in jobs[1:]] for jobs in found[form])
        assert min(calm) > costs.job + costs.byte * 80e7 * 3 / 8 / 3  # noise is a factor of 3 at most
        assert (median(crowded) > 2 * median(calm)) == (form == "static")
    first, *later = found["elastic"][1]
    assert first.moved > 0
    assert all(job.moved == 0 for job in later)
    assert first.skew < found["static"][1][0].skew / 2
    assert all(job.moved == 240e7 * 3 / 4 for jobs in found["range"] for job in jobs)
