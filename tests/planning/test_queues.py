"""Waits: against queues that are simulated, and what must hold of any of them."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.planning.moments import Moments
from transom.planning.queues import LONGEST, Shared, cycle, gate_wait, left, queueing, slot_wait, third_moment

LOADS = st.floats(0.01, 0.95)


def simulated(load: float, regular: float, varied: float, count: int = 200_000) -> Moments:
    """A queue by Lindley's recursion, as a walk minus its lowest point so far; a service takes 1 on average."""
    random = np.random.default_rng(3)

    def times(scv: float, mean: float) -> np.ndarray:
        return random.gamma(1 / scv, mean * scv, count) if scv else np.full(count, mean)

    between, service = times(regular, 1 / load), times(varied, 1.0)
    walk = np.concatenate([[0.0], np.cumsum(service[:-1] - between[1:])])
    waits = walk - np.minimum.accumulate(walk)
    return Moments(float(waits.mean()), float(waits.var()))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("varied", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("regular", [0.0, 0.25, 1.0])
def test_waits_are_those_of_a_simulated_queue(load: float, varied: float, regular: float):
    seen, said = simulated(load, regular, varied), queueing(load, regular, Moments.with_scv(1.0, varied))
    assert said.mean == pytest.approx(seen.mean, abs=0.15 + 0.12 * seen.mean)
    assert said.sigma == pytest.approx(seen.sigma, abs=0.25 + 0.15 * seen.sigma)


@given(LOADS, st.floats(0, 3), st.floats(0.0, 3))
def test_waits_rise_with_the_load_and_without_end(load: float, regular: float, varied: float):
    service = Moments.with_scv(1.0, varied)
    assert queueing(load, regular, service).mean <= queueing(load * 1.05, regular, service).mean + 1e-9
    assert queueing(1.0, regular, service).mean == math.inf
    assert queueing(0.0, regular, service) == Moments()


@given(LOADS, st.floats(0, 3), st.floats(0.0, 3), st.floats(1e-3, 10))
def test_waits_are_the_same_in_any_unit_of_time(load: float, regular: float, varied: float, unit: float):
    one = queueing(load, regular, Moments.with_scv(1.0, varied))
    other = queueing(load / unit, regular, Moments.with_scv(unit, varied))
    assert other.mean == pytest.approx(unit * one.mean)
    assert other.variance == pytest.approx(unit**2 * one.variance, rel=1e-6, abs=1e-9 * unit**2)


@given(LOADS)
def test_waits_are_exact_for_random_arrivals(load: float):
    exponential, fixed = queueing(load, 1.0, Moments(1.0, 1.0)), queueing(load, 1.0, Moments(1.0, 0.0))
    assert exponential.mean == pytest.approx(load / (1 - load))
    assert exponential.square == pytest.approx(2 * load / (1 - load) ** 2)
    assert fixed.mean == pytest.approx(load / (1 - load) / 2)
    assert fixed.square == pytest.approx(2 * fixed.mean**2 + load / (1 - load) / 3)


def test_the_third_moment_is_that_of_the_gamma_law():
    assert third_moment(Moments(2.0, 4.0)) == pytest.approx(6 * 2.0**3)  # exponential
    assert third_moment(Moments(3.0, 0.0)) == pytest.approx(27)


@given(st.floats(1, 1e5), st.floats(0, 2), st.floats(0.01, 1), st.floats(0.0, 0.98))
def test_a_cycle_is_the_least_solution(rate: float, trigger: float, fixed: float, load: float):
    def seconds(rows: float) -> float:
        return fixed + load / rate * rows

    assert cycle(rate, trigger, 0.0, seconds) == pytest.approx(max(trigger, fixed / (1 - load)), rel=1e-4)


def test_a_cycle_that_cannot_keep_up_has_no_end():
    assert cycle(100.0, 1.0, 0.0, lambda rows: 0.1 + rows * 0.0101) == math.inf
    assert cycle(100.0, 5.0, 0.0, lambda rows: 0.1 + rows * 0.0101) == math.inf
    assert cycle(100.0, 5.0, 0.0, lambda rows: math.inf) == math.inf
    assert cycle(100.0, 5.0, 0.0, lambda rows: 1.1 * LONGEST) == math.inf
    assert cycle(100.0, 5.0, 0.0, lambda rows: 0.9 * LONGEST + 0.002 * rows) == math.inf
    assert cycle(100.0, 5.0, 0.0, lambda rows: 0.9 * LONGEST) == 0.9 * LONGEST


def test_a_cycle_is_found_where_cost_grows_ever_slower():
    found = cycle(1000.0, 0.1, 0.0, lambda rows: 0.2 + 0.02 * rows**0.5)
    assert found == pytest.approx(max(0.1, 0.2 + 0.02 * (1000 * found) ** 0.5), rel=1e-4)


def test_a_cycle_is_found_where_cost_has_steps():
    def seconds(rows: float) -> float:
        return 0.1 + 0.05 * math.ceil(rows / 100)

    found = cycle(1000.0, 0.0, 0.0, seconds)
    assert seconds(1000 * found) <= found
    assert seconds(1000 * found * 0.999) > found * 0.999


def test_no_cut_is_made_before_rows_come():
    assert cycle(100.0, 0.1, 3.0, lambda rows: 0.2) == 3.0


@pytest.mark.parametrize("regular", [0.0, 1.0])
@pytest.mark.parametrize("piece", [0.0517, 0.3141, 0.87123, 1.7])
def test_the_wait_at_the_gate_is_that_of_a_simulated_one(piece: float, regular: float):
    random = np.random.default_rng(4)
    count, length = 60_000, 1.0
    between = random.exponential(piece, count) if regular else np.full(count, piece)
    waits, started, at = [], -math.inf, 0
    arrivals = np.cumsum(between)
    while at < count:
        start = max(arrivals[at], started + length)
        upto = int(np.searchsorted(arrivals, start, side="right"))
        waits.extend(start - arrivals[at:upto])
        started, at = start, upto
    said = gate_wait(Moments(length), piece, regular)
    assert said.mean == pytest.approx(np.mean(waits), abs=0.02)
    assert said.sigma == pytest.approx(np.std(waits), abs=0.02)


@pytest.mark.parametrize("varied", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("load", [0.6, 0.8, 0.9, 0.97])
def test_pieces_like_clockwork_wait_for_cuts_that_are_longer_than_others(load: float, varied: float):
    """A tenth of the time between two of them is what it may be off; before, none waited."""
    lengths = np.random.default_rng(4).gamma(1 / varied, load * varied, 20_000)
    waits, free, piece = [], 0.0, 0
    for length in lengths:
        start = max(float(piece), free)
        upto = max(piece, math.floor(start))
        waits.extend(start - np.arange(piece, upto + 1))
        piece, free = upto + 1, start + length
    assert gate_wait(Moments.with_scv(load, varied), 1.0, 0.0).mean == pytest.approx(np.mean(waits), abs=0.1)


@given(st.lists(st.floats(0, 1), max_size=6), st.integers(1, 7))
def test_who_waits_for_a_slot_meets_all_ways_in_which_others_run_or_rest(shares: list[float], slots: int):
    waited = sum(chance for chance, count in ways(shares) if count >= slots) * sum(each**2 for each in shares)
    mean = slot_wait([Shared(Moments(each), 1.0) for each in shares], slots).mean
    assert mean * sum(shares) == pytest.approx(waited / 2 / slots, abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(1, 7), st.floats(0.1, 3))
def test_cores_are_left_by_as_many_others_as_there_are_other_slots(shares: list[float], slots: int, each: float):
    found = left([(share, share * each) for share in shares], slots, 8.0)
    assert sum(chance for chance, _ in found) == pytest.approx(1)
    expected = sum(
        chance * max(8.0 - least * each, 8.0 / (least + 1))
        for chance, count in ways(shares)
        for least in [min(count, slots - 1)]
    )
    assert sum(chance * cores for chance, cores in found) == pytest.approx(expected)


def test_a_job_has_its_part_of_the_cores_where_others_have_more_tasks_than_there_are_cores():
    assert left([(1.0, 7.0), (1.0, 9.0)], 3, 8.0) == [(1.0, pytest.approx(8 / 3))]
    assert left([(1.0, 7.0), (1.0, 9.0)], 2, 8.0) == [(1.0, pytest.approx(4))]
    assert left([(0.5, 3.0)], 2, 8.0) == [(0.5, 8.0), (0.5, 4.0)], "6 cores while it has tasks, of which 4 are its part"
    assert left([(0.5, 1.0)], 2, 8.0) == [(0.5, 8.0), (0.5, 6.0)]
    assert left([(0.5, 3.0)], 1, 8.0) == left([], 4, 8.0) == left([(0.0, 0.0)], 4, 8.0) == [(1.0, 8.0)]


def ways(shares: list[float]) -> list[tuple[float, int]]:
    """All ways in which streams run or rest: the chance of each, and how many run."""
    return [
        (math.prod(share if runs else 1 - share for share, runs in zip(shares, way, strict=True)), sum(way))
        for way in product((False, True), repeat=len(shares))
    ]


def simulated_slots(jobs: list[Moments], think: list[float], slots: int) -> Moments:
    """Streams that take a slot, run, and rest, first come first served; the waits of all."""
    random = np.random.default_rng(5)
    free = [0.0] * slots
    ready = [(random.uniform(0, rest + 1), place) for place, rest in enumerate(think)]
    waits = []
    for _ in range(20_000):
        at, place = min(ready)
        slot = free.index(min(free))
        start = max(at, free[slot])
        waits.append(start - at)
        job = jobs[place]
        free[slot] = start + random.gamma(job.mean**2 / job.variance, job.variance / job.mean)
        ready[place] = (free[slot] + random.exponential(think[place]), place)
    return Moments(float(np.mean(waits)), float(np.var(waits)))


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("think", [0.5, 2.0, 6.0])
def test_the_wait_for_a_slot_is_that_of_simulated_streams(slots: int, think: float):
    jobs, rests = [Moments(0.3, 0.02)] * 4, [think] * 4
    seen = simulated_slots(jobs, rests, slots)
    waits = [Moments()] * 4
    for _ in range(50):
        streams = [
            Shared(job, rest + job.mean + wait.mean, wait.mean)
            for job, rest, wait in zip(jobs, rests, waits, strict=True)
        ]
        waits = [slot_wait(streams[:place] + streams[place + 1 :], slots) for place in range(4)]
    assert waits[0].mean == pytest.approx(seen.mean, abs=0.003 + 0.12 * seen.mean)
    assert waits[0].sigma == pytest.approx(seen.sigma, abs=0.003 + 0.25 * seen.sigma)


def test_a_job_waits_for_what_is_left_of_jobs_of_any_length():
    short, long = Shared(Moments(0.1, 0.0), 1.0), Shared(Moments(0.4, 0.0), 1.0)
    # One of both runs with 1 - 0.9 x 0.6; the long one is met four times of five, and half of what is met is left.
    assert slot_wait([short, long], 1).mean == pytest.approx(0.46 * (0.2 * 0.05 + 0.8 * 0.2))
    assert slot_wait([short, long], 2).mean == pytest.approx(0.04 * (0.2 * 0.05 + 0.8 * 0.2) / 2)
    assert slot_wait([Shared(Moments(), 1.0)], 1) == Moments()


@given(st.integers(1, 6), st.lists(st.floats(0.01, 1), min_size=1, max_size=6))
def test_more_slots_never_wait_longer(slots: int, jobs: list[float]):
    others = [Shared(Moments(job, job**2), 2.0, 0.1) for job in jobs]
    fewer, more = slot_wait(others, slots), slot_wait(others, slots + 1)
    assert 0 <= more.mean <= fewer.mean
    assert fewer.variance >= 0


@pytest.mark.parametrize("fall", [0.1, 0.9, 3.0])
def test_a_cycle_that_is_shorter_the_more_rows_there_are(fall: float):
    found = cycle(1.0, 0.0, 0.0, lambda rows: max(0.01, 1.0 - fall * rows))
    assert found == pytest.approx(1 / (1 + fall), rel=1e-3)
