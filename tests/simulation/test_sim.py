"""The simulated engine: what follows by hand, what must hold for every policy, and that it repeats itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from transom.errors import DefinitionError
from transom.scheduling.policies import POLICIES, bounded, policy_named
from transom.simulation.sim import Machine, Simulation
from transom.simulation.world import LAWS, StreamTruth, load, make_world, together

S = 1_000_000
STREAM = StreamTruth(
    rate=10_000, slide=3 * S, length=3 * S, limit=S, job=0.1, row=1e-5, partials=100, watermark_every=3 * S
)


def run(streams, policy="klink", seconds=60, seeds=(1, 2), **machine):
    world = make_world(streams, seeds, seconds)
    return world, Simulation(world, [policy_named(policy)], Machine(**machine)).run(25 * S)[0]


def test_one_stream_alone_takes_its_job_and_its_rows():
    """Without competition a result is there when the running job and one more are done, each of known size."""
    world, outcome = run([STREAM], "fcfs", cores=4)
    assert outcome.mean() == pytest.approx(0.1 + 0.15, abs=0.1)
    assert outcome.quantile(1.0).max() < 0.8
    assert (outcome.within() == 1).all()
    assert outcome.throughput == pytest.approx(world.rates.sum((1, 2)) * S / 60, rel=0.02)
    assert (outcome.missing == 0).all()


def test_load_is_one_job_per_window_over_the_cores():
    assert STREAM.work == pytest.approx(0.1 / 3 + 0.1)
    assert load([STREAM] * 30, 4) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "policy",
    [
        name if name == "klink" else pytest.param(name, marks=pytest.mark.slow)
        for name in POLICIES
        if name != "highest_rate"
    ],
)
def test_every_fair_policy_keeps_up_below_the_capacity_and_loses_no_row(policy):
    streams = [replace(STREAM, rate=rate) for rate in (2_000, 5_000, 10_000, 20_000)] * 3
    world, outcome = run(streams, policy, 40, cores=4)
    assert load(streams, 4) < 0.5
    assert (outcome.missing < 0.01).all()
    assert (outcome.throughput <= world.rates.sum((1, 2)) * S / 40 + 1e-6).all()
    assert (outcome.busy <= 1 + 1e-9).all()
    assert (outcome.latency[~np.isnan(outcome.latency)] > 0.09).all(), "no result without a job"


def test_highest_rate_starves_the_last_even_at_half_load():
    """It runs a stream again as soon as it has a few rows: what it gives the best is missing for the others."""
    streams = [replace(STREAM, rate=rate) for rate in (2_000, 5_000, 10_000, 20_000)] * 3
    _, outcome = run(streams, "highest_rate", 40, cores=4)
    assert (outcome.quantile(1.0) > 10).all()


@pytest.mark.slow
def test_the_same_seeds_give_the_same_and_arrivals_do_not_depend_on_the_policy():
    streams = [replace(STREAM, burst=0.5, delay="zipf")] * 6
    first, second = (run(streams, "klink", cores=1)[1] for _ in range(2))
    assert np.array_equal(first.latency, second.latency, equal_nan=True)
    alone = run(streams, "klink", seeds=(2,), cores=1)[1]
    assert np.array_equal(first.latency[1:], alone.latency, equal_nan=True), "runs do not touch one another"
    other = run(streams, "fcfs", cores=1)[1]
    assert np.array_equal(np.isnan(first.latency), np.isnan(other.latency))


@pytest.mark.slow
def test_policies_and_worlds_side_by_side_are_what_each_gives_alone():
    light, heavy = [STREAM] * 6, [replace(STREAM, row=2.4e-5)] * 8
    worlds = [make_world(streams, (1, 2), 50) for streams in (light, heavy)]
    policies = [policy_named(name) for name in ("klink", "fair", "fcfs")]
    outcomes = Simulation(together(worlds), policies, Machine(cores=2)).run(25 * S)
    for policy, outcome in zip(policies, outcomes, strict=True):
        for place, world in enumerate(worlds):
            alone = Simulation(world, [policy], Machine(cores=2)).run(25 * S)[0]
            part = outcome.part(2 * place, 2 * place + 2)
            queries = alone.latency.shape[1]
            assert np.array_equal(part.latency[:, :queries], alone.latency, equal_nan=True)
            assert np.isnan(part.latency[:, queries:]).all(), "where there is no stream nothing happens"
            assert part.throughput == pytest.approx(alone.throughput)


@pytest.mark.slow
def test_above_a_load_of_1_a_cycle_takes_in_several_windows_and_latency_settles():
    """Rows alone fill 0.96 of the cores, with a job per window 1.06: only runs over several windows keep up."""
    streams = [replace(STREAM, row=2.9e-5)] * 13
    assert load(streams, 4) > 1.05
    short, long = (run(streams, "klink", seconds, cores=4)[1] for seconds in (150, 300))
    assert long.mean().max() < 1.5 * short.mean().min()
    _, bound = run(streams, "klink", 300, cores=4, cycle=1.0)
    assert bound.mean().min() > 1.5 * long.mean().max(), "and no more than a window at a time does not"


def test_klink_beats_the_others_when_cores_are_short():
    streams = [replace(STREAM, row=2.6e-5)] * 13
    assert load(streams, 4) == pytest.approx(0.95, abs=0.01)
    means = {name: run(streams, name, 80, cores=4)[1].mean().mean() for name in ("klink", "fcfs", "fair")}
    assert means["klink"] < 0.75 * means["fcfs"]
    assert means["klink"] < 0.6 * means["fair"]


def test_a_joined_window_waits_for_all_its_inputs():
    joined = replace(STREAM, inputs=3)
    world, outcome = run([joined] * 6, cores=8)
    assert outcome.latency.shape[1] == 2
    swept = world.swept.reshape(2, 2, 3, -1).max(axis=2)
    known = ~np.isnan(outcome.latency)
    assert np.isfinite(swept[known]).all()
    assert outcome.latency[known].min() > 0.09
    with pytest.raises(DefinitionError, match="neighbours"):
        make_world([joined] * 4, [1], 10)


def test_overload_grows_and_missing_results_count():
    streams = [replace(STREAM, row=1e-4)] * 8
    short, long = (run(streams, "fcfs", seconds, cores=4)[1] for seconds in (60, 120))
    assert long.mean().min() > short.mean().max() > 5
    assert long.missing.min() > 0.1


def test_the_memory_mode_is_entered_under_overload_and_loses_nothing():
    streams = [replace(STREAM, row=1e-4, rate=rate) for rate in (5_000, 20_000)] * 4
    _, free = run(streams, "klink", cores=4)
    _, bound = run(streams, "klink", cores=4, memory=float(free.peak.min()) / 2)
    assert not np.array_equal(free.latency, bound.latency, equal_nan=True)
    assert bound.throughput.min() > 0.95 * free.throughput.min()


def test_fair_shares_the_cores_among_all_jobs():
    _, outcome = run([replace(STREAM, row=2e-5)] * 16, "fair", cores=4)
    assert outcome.busy.max() <= 1 + 1e-9
    assert outcome.mean().min() > run([replace(STREAM, row=2e-5)] * 16, "klink", cores=4)[1].mean().max()


@pytest.mark.parametrize("law", list(LAWS))
def test_the_derived_watermark_comes_from_the_fastest_rows(law):
    """The notes: uniform delays up to 1 s at 10,000 rows/s have a mean of 500 ms, their watermark a lag of 12 ms."""
    stream = replace(STREAM, delay=law, watermark_every=None)
    world = make_world([stream] * 4, [1], 300)
    ends = world.ends[:, :, None] + stream.slide * np.arange(world.swept.shape[2])
    lag = (world.swept - ends)[np.isfinite(world.swept)]
    expected = {"uniform": (12_000, 4_000), "zipf": (1_600, 800)}[law]
    assert lag.mean() == pytest.approx(expected[0], abs=expected[1])
    assert lag.min() > 0


def test_watermarks_injected_more_often_come_from_the_first_of_several():
    often, seldom = (make_world([replace(STREAM, watermark_every=every)] * 4, [1], 300) for every in (S // 10, 3 * S))
    lags = [
        (world.swept - world.ends[:, :, None] - 3 * S * np.arange(world.swept.shape[2]))[np.isfinite(world.swept)]
        for world in (often, seldom)
    ]
    assert lags[0].mean() < 0.7 * lags[1].mean()
    assert lags[1].mean() == pytest.approx(S / 2, rel=0.1)


def test_what_cannot_be_is_refused():
    with pytest.raises(DefinitionError, match="delay law"):
        replace(STREAM, delay="pareto")
    with pytest.raises(DefinitionError, match="between watermarks"):
        replace(STREAM, watermark_every=2 * S)
    with pytest.raises(DefinitionError, match="no streams"):
        make_world([], [1], 10)
    with pytest.raises(DefinitionError, match="positive"):
        Machine(cores=0)
    assert bounded(POLICIES["fair"]).at_once
