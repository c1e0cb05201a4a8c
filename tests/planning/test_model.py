"""Latencies by the model: against streams that are simulated cut by cut, and what must hold of any profile."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.planning.profiles import costs_of_streams, profile, stream, tuning

from transom.model.phases import OF_WINDOWS, WAITS, Phase
from transom.planning.cuts import Cutting
from transom.planning.model import Machine, Model, Prediction
from transom.planning.moments import NEVER, Moments
from transom.planning.phases import CUT, DRIVER, TASKS, THREAD
from transom.planning.profile import PhaseCost, Profile, StreamProfile
from transom.planning.queues import left, queueing
from transom.planning.search import WORSE
from transom.planning.waves import clock

LARGE = Machine(8, shared=False)
ONE_TASK = 1 << 40
RARELY = 1e7
"""Seconds between closings, so that these start no cuts."""


def on_looks(cycle: float) -> float:
    """Return the trigger with which cuts begin every so often: it is seen at the look after it has passed."""
    return cycle - stream().cost(Phase.LOOK).fixed


def predicted(known: Profile, rate: float, machine: Machine = LARGE, **values) -> Prediction:
    values = {"rows_per_task": ONE_TASK, **values}
    return Model(known, machine, tuning(known, **values), dict.fromkeys(known.streams, rate)).predict()


def simulated(known: Profile, rate: float, trigger: float, count: int = 10_000) -> np.ndarray:
    """Latencies of closings that come at random to a stream that is served cut by cut, on its own machine."""
    random = np.random.default_rng(8)
    only = known.streams["s"]
    cutting = Cutting(only, tuning(known, trigger, rows_per_task=ONE_TASK).of("s"), LARGE.cores, LARGE.cores)

    def takes(phases: tuple[Phase, ...], rows: float) -> float:
        times = [cutting.of(rows).phase(phase) for phase in phases]
        return sum(random.gamma(t.mean**2 / t.variance, t.variance / t.mean) if t.variance else t.mean for t in times)

    pieces = np.cumsum(random.exponential(only.piece, count))
    rows = rate * only.piece * random.gamma(4, 1 / 4, count)
    found, started, free, at = [], -math.inf, 0.0, 0
    while at < count:
        start = max(pieces[at], started + trigger, free)
        if start > free:  # seen at the next look
            start += takes((Phase.LOOK,), 0.0)
        upto = int(np.searchsorted(pieces, start, side="right"))
        free = start + takes(CUT, float(rows[at:upto].sum()))
        closings = pieces[at:upto]
        found.extend(free - closings + takes(OF_WINDOWS, 0.0))
        started, at = start, upto
    return np.array(found)


@pytest.mark.parametrize("trigger", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("rate", [5_000, 60_000, 150_000])
def test_a_stream_takes_as_long_as_when_it_is_simulated(rate: float, trigger: float):
    # The rows of files vary and files come at random, so that those of a cut vary like a compound Poisson number.
    known = profile(s=stream(piece=0.05, closing=RARELY))
    cycle = predicted(known, rate, trigger=trigger).streams["s"].cycle
    known = profile(s=stream(piece=0.05, closing=RARELY, uneven=1.25 * 0.05 / cycle))
    said, seen = predicted(known, rate, trigger=trigger).streams["s"].result, simulated(known, rate, trigger)
    assert said.mean == pytest.approx(seen.mean(), rel=0.08)
    assert said.sigma == pytest.approx(seen.std(), rel=0.2)


@example(stream(row=6e-5, scv=0.5, piece=1.0, regular=0.0, uneven=0.3, closing=2.0), 10.0, 1.0, 1)  # one piece a cut
@given(costs_of_streams, st.floats(10, 1e5), st.floats(0.05, 5), st.integers(1, 3))
def test_latency_rises_with_the_rate(one, rate: float, trigger: float, count: int):
    # A longer trigger may be passed over sooner where more comes: cuts that complete windows are followed at once.
    trigger = min(trigger, one.closing / 2)
    known = profile(**{f"s{place}": one for place in range(count)})
    slower, faster = (predicted(known, each, trigger=trigger) for each in (rate, 1.1 * rate))
    for name in known.streams:
        assert slower.streams[name].record.mean <= faster.streams[name].record.mean * (1 + 1e-3)
        assert slower.streams[name].result.mean <= faster.streams[name].result.mean * (1 + 1e-3)


@example(stream(row=7.48785187170539e-05, scv=0.0, closing=1.0), 34_198.0, 12, 8, 3)  # by 0.11 % more
@example(stream(row=2**-14, scv=0.5, groups=1), 10.0, 7, 8, 1)  # by 0.16 % more where a wave less is due
@given(costs_of_streams, st.floats(10, 1e5), st.integers(1, 40), st.integers(1, 8), st.integers(1, 3))
def test_latency_falls_with_the_cores(one, rate: float, cores: int, tasks: int, count: int):
    known = profile(**{f"s{place}": replace(one, parts=tasks) for place in range(count)})
    fewer, more = (
        predicted(known, rate, Machine(each, driver=0.1), rows_per_task=1, partitions=tasks)
        for each in (cores, cores + 1)
    )
    for name in known.streams:  # of several, what is left of the cores follows from what takes less time by them
        assert more.streams[name].result.mean <= fewer.streams[name].result.mean * (1 + (1e-3 if count == 1 else 3e-3))


@given(costs_of_streams, st.floats(10, 1e5))
def test_the_phases_add_up_to_the_result(one, rate: float):
    known = predicted(profile(s=one), rate)
    assume(known.keeps_up)
    assert sum(phase.mean for phase in known.streams["s"].phases.values()) == pytest.approx(
        known.streams["s"].result.mean
    )


def test_too_much_is_said_to_be_too_much():
    known = predicted(profile(), 300_000)
    assert not known.keeps_up
    assert known.streams["s"].result.mean == math.inf
    assert known.loads["stream"] > 1
    assert predicted(profile(), 100).loads["stream"] < 1


@pytest.mark.parametrize("piece", [0.0, 0.5])
def test_a_stream_without_rows_takes_as_long_as_one_with_hardly_any(piece: float):
    known = profile(s=stream(piece=piece))
    none, few = (predicted(known, rate).streams["s"].result.mean for rate in (0.0, 1e-6))
    assert none == pytest.approx(few, rel=1e-3)


def heavy(phase: Phase, seconds: float = 2.0) -> StreamProfile:
    known = stream()
    return replace(known, costs={**known.costs, phase: PhaseCost(seconds, 0.0, 0.02)})


@pytest.mark.parametrize("phase", OF_WINDOWS)
@pytest.mark.parametrize("others", [{}, {"a": stream()}, {"z": stream()}])
def test_closings_that_take_longer_than_the_time_between_them_are_too_much(phase: Phase, others):
    known = predicted(profile(s=heavy(phase), **others), 100)
    assert not known.keeps_up
    assert known.streams["s"].result == NEVER
    assert known.loads["sinks" if phase is Phase.DELIVER else "thread"] >= 2


def test_streams_whose_waits_for_each_other_grow_without_end_do_not_keep_up():
    crowd = profile(**{f"s{place}": stream(row=1e-5, fixed=5.0) for place in range(8)})
    assert not predicted(crowd, 30_000, Machine(4), slots=1).keeps_up
    assert predicted(crowd, 300, Machine(4), slots=1).keeps_up


def test_a_stream_that_cannot_keep_up_leaves_no_other_one_without_loads():
    known = predicted(profile(a=stream(row=1e-3), b=stream()), 30_000, trigger=0.0)
    assert not known.keeps_up
    assert known.loads["stream"] > 1


def test_loads_are_the_work_of_a_second():
    known = profile(a=stream(closing=RARELY), b=stream(closing=RARELY))
    said = predicted(known, 5_000, Machine(8, True, driver=0.5), trigger=on_looks(2.0))
    one = Cutting(stream(), tuning(known, 2.0, rows_per_task=ONE_TASK).of("a"), 8, 8).of(10_000)

    def each_second(phase: Phase) -> float:
        return one.work(phase) / (RARELY if phase in OF_WINDOWS else 2.0)

    assert said.streams["a"].cycle == pytest.approx(2.0)
    assert said.loads["slots"] == pytest.approx(one.job().mean / 2, rel=0.1)
    assert said.loads["stream"] == pytest.approx(sum(one.mean(phase) for phase in CUT) / 2, rel=0.1)
    assert said.loads["thread"] == pytest.approx(2 * sum(map(each_second, THREAD)))
    assert said.loads["sinks"] == pytest.approx(each_second(Phase.DELIVER))
    work = sum(map(each_second, (*TASKS, *DRIVER)))
    assert said.loads["cores"] == pytest.approx((2 * work + 0.5) / 8)
    apart = predicted(known, 5_000, Machine(8, False), trigger=on_looks(2.0))
    assert apart.loads["cores"] == pytest.approx(2 * sum(map(each_second, TASKS)) / 8)


def test_the_cores_of_a_job_are_what_all_else_leaves():
    known = profile(s=stream(scv=0.0, closing=RARELY))
    alone = predicted(known, 10_000, Machine(2, False), trigger=1.0, rows_per_task=1_000)
    beside = predicted(known, 10_000, Machine(2, True, driver=1.0), trigger=1.0, rows_per_task=1_000)
    map_alone, map_beside = (each.streams["s"].phases[Phase.MAP].mean for each in (alone, beside))
    assert map_beside == pytest.approx(clock(11, 1.0, 0.0) / clock(11, 2.0, 0.0) * map_alone)  # six waves in pairs


def test_other_streams_and_their_driver_leave_the_rest_of_the_cores():
    each = stream(scv=0.0, closing=RARELY)
    known = profile(a=each, b=each)
    said = predicted(known, 10_000, Machine(4, driver=0.2), trigger=on_looks(1.0), rows_per_task=1_000)
    cut = Cutting(each, tuning(known, 1.0, rows_per_task=1_000).of("b"), 4, 4).of(10_000)
    tasks, driver = (sum(cut.work(phase) for phase in phases if phase not in OF_WINDOWS) for phases in (TASKS, DRIVER))
    own = said.streams["b"].cores  # on average; there are ten tasks and then four, and a cycle of one second
    working = sum(cut.work(phase) for phase in TASKS) / own
    free = left([(working, tasks)], 2, 4 - 0.2 - driver)
    assert [round(cores, 1) for _, cores in free] == [3.6, 1.8], "alone, and beside the other one"
    for phase, number in ((Phase.MAP, cut.tasks), (Phase.EXCHANGE, cut.behind)):
        factor = sum(share * clock(number, cores, 0.0) for share, cores in free)
        assert said.streams["a"].phases[phase].mean == pytest.approx(cut.work(phase) * factor, rel=5e-3)


def test_cuts_of_whole_pieces_take_longer_where_some_have_a_task_too_many():
    """With 1.5 pieces on average every other cut has two, and five tasks on four cores instead of three."""
    known = profile(s=stream(row=1e-4, fixed=0.1, scv=0.0, piece=0.2, regular=0.0, closing=RARELY))
    said = predicted(known, 10_000, Machine(4, shared=False), trigger=on_looks(0.3), rows_per_task=850).streams["s"]
    cutting = Cutting(known.streams["s"], tuning(known, rows_per_task=850).of("s"), 4, 4, 10_000)
    assert [cutting.tasks(rows) for rows in (2_000.0, 3_000.0, 4_000.0)] == [3, 4, 5]
    few, many = (cutting.of(rows).mean(Phase.MAP) for rows in (2_000.0, 4_000.0))
    assert said.cycle == pytest.approx(0.3)
    assert said.phases[Phase.MAP].mean == pytest.approx((few + 2 * many) / 3), "two of three rows are in larger cuts"
    assert said.phases[Phase.MAP].mean > 1.2 * cutting.of(3_000.0).mean(Phase.MAP)


def test_a_stream_without_a_trigger_goes_round_with_its_waits_and_its_cut():
    known = predicted(profile(a=stream(), b=stream(), c=stream()), 3_000, trigger=0.0, slots=2).streams["b"]
    assert 0.01 < known.phases[Phase.SLOT].mean < known.cycle / 2
    assert known.cycle > 0.01 + sum(known.phases[phase].mean for phase in CUT)
    waits = known.phases[Phase.TURN].mean + known.phases[Phase.SLOT].mean
    assert waits == pytest.approx(known.cycle / 2, rel=1e-3)
    assert known.rows == pytest.approx(3_000 * known.cycle)
    assert known.record.mean == pytest.approx(sum(known.phases[phase].mean for phase in (*WAITS, *CUT)))


def test_results_wait_in_their_sink_for_those_before_them():
    slow = replace(heavy(Phase.DELIVER), closing=4.0)
    alone = Moments.with_scv(2.0, 0.02)
    waited = queueing(0.25, 0.0, alone)
    assert waited.mean > 0
    found = predicted(profile(s=slow), 100).streams["s"].phases[Phase.DELIVER]
    assert (found.mean, found.variance) == pytest.approx(((alone + waited).mean, (alone + waited).variance))


def test_what_others_do_on_the_thread_is_waited_for_at_the_commit():
    three = profile(a=stream(), b=stream(), c=stream())
    alone, beside = predicted(profile(a=stream()), 100), predicted(three, 100, slots=3)
    assert beside.streams["a"].phases[Phase.COMMIT].mean > alone.streams["a"].phases[Phase.COMMIT].mean
    delivered = [each.streams["a"].phases[Phase.DELIVER].mean for each in (alone, beside)]
    assert delivered[0] == pytest.approx(delivered[1])


def test_streams_wait_for_each_other_only_for_what_they_share():
    three = profile(a=stream(), b=stream(), c=stream())
    phases = [predicted(three, 10_000, slots=slots).streams["a"].phases for slots in (1, 2, 3)]
    waits = [one[Phase.SLOT].mean for one in phases]
    assert waits[0] > waits[1] > waits[2] == 0
    assert predicted(profile(a=stream()), 10_000, slots=1).streams["a"].phases[Phase.SLOT] == Moments()


def test_a_stream_of_results_is_as_late_as_what_it_reads_and_itself():
    chained = predicted(profile(a=stream(), b=stream(after="a")), 1_000)
    alone = predicted(profile(a=stream(), b=stream()), 1_000)
    both = alone.streams["a"].result + alone.streams["b"].result
    assert chained.streams["b"].result.mean == pytest.approx(both.mean)
    assert chained.streams["b"].result.variance == pytest.approx(both.variance)


def test_the_slowest_group_and_the_slowest_task_are_waited_for():
    one, eight = (predicted(profile(s=stream(groups=groups)), 1_000).streams["s"] for groups in (1, 8))
    assert eight.phases[Phase.CONSOLIDATE].mean > one.phases[Phase.CONSOLIDATE].mean
    cutting = Cutting(stream(scv=0.5), tuning(profile(), rows_per_task=25_000).of("s"), 4, 4)
    four, single = cutting.of(100_000), cutting.of(20_000)
    assert (four.tasks, four.behind) == (4, 4)
    assert four.phase(Phase.MAP).mean > four.work(Phase.MAP) / 4
    assert (single.tasks, single.behind) == (1, 0)
    assert single.phase(Phase.EXCHANGE) == Moments()


# In the first round one waits for more of the other than when that waits, too.
@example(
    stream(7.90304692778167e-05, 0.75, 0.125), stream(7.90304692778167e-05, 3.0, 0.0, piece=0.25), 11_859.0, 2, 1.0
)
@given(costs_of_streams, costs_of_streams, st.floats(100, 2e5), st.integers(1, 3), st.floats(0.01, 1))
def test_what_is_given_up_takes_longer_than_was_asked_for(one, other, rate: float, slots: int, part: float):
    known = profile(s=one, t=other)

    def predict(longest: dict[str, float]) -> Prediction:
        settings_of = tuning(known, slots=slots, rows_per_task=2_000)
        return Model(known, Machine(4, shared=False), settings_of, dict.fromkeys("st", rate)).predict(longest)

    whole = predict({})
    means = {name: each.result.mean for name, each in whole.streams.items()}
    assume(max(means.values()) < 20)  # near a load of 1 waits swing more: no limit is so long
    # Waits may settle from above, too, where they swing.
    assert not predict({name: WORSE * mean for name, mean in means.items()}).given_up
    least = predict({name: part * mean for name, mean in means.items()})
    for name in means:
        assert least.streams[name].result.mean <= WORSE * means[name]
    assert not least.given_up or any(least.streams[name].result.mean > part * means[name] for name in means)


@pytest.mark.parametrize("tasks", [2, 4, 8])
@pytest.mark.parametrize("load", [1.05, 1.2, 1.5])
def test_streams_that_need_more_cores_than_there_are_do_not_keep_up(tasks: int, load: float):
    """Jobs that wait for each other's cores have tasks for longer, so that fewer cores are left to each."""
    row, rate = 1e-3, load * 6 / 3 / 1e-3
    each = stream(row=row, fixed=0.05, scv=0.1, closing=RARELY)
    per_task = math.ceil(rate / tasks)
    said = predicted(
        profile(a=each, b=each, c=each), rate, Machine(6, shared=False), trigger=1.0, slots=3, rows_per_task=per_task
    )
    assert not said.keeps_up
