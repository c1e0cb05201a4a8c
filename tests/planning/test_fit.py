"""Profiles from measured cuts: the model's own predictions give back its costs, and too little is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planning.profiles import costs_of_streams, stream

from transom.errors import DefinitionError
from transom.model.phases import CutPhases, Phase, StageTasks
from transom.model.tuning import StreamTuning
from transom.planning.cuts import Cutting, collected
from transom.planning.fit import LEAST, SPREAD, Nature, _of_tasks, _parts, fit
from transom.planning.moments import Moments
from transom.planning.phases import CUT
from transom.planning.profile import Equipment, Profile, StreamProfile

CORES = 4
SIZES = (1_000, 2_000, 8_000, 30_000, 60_000, 120_000)


def stage(tasks: int) -> StageTasks:
    return StageTasks(tasks, 1.0, 0.0, 1.0, 0.0)


def seen(known: StreamProfile, rows: int, tasks: int, noise: np.random.Generator | None = None) -> CutPhases:
    """Return a cut as the model predicts it, with the spread that it predicts if there is noise."""
    tuning = StreamTuning(0, None, -(-rows // tasks), CORES)
    cut = Cutting(known, tuning, CORES, CORES).of(rows)
    seconds = {}
    for phase in (*CUT, Phase.CLOSE, Phase.CONSOLIDATE, Phase.DELIVER):
        if phase is Phase.EXCHANGE and not cut.behind:
            continue
        time = cut.phase(phase)
        seconds[phase] = time.mean if noise is None else max(0.0, float(noise.normal(time.mean, time.sigma)))
    stages = (stage(cut.tasks), stage(CORES)) if cut.behind else (stage(cut.tasks),)
    partials = round(collected(rows, cut.tasks, cut.behind, known.keys))
    return CutPhases("s", rows, rows, seconds, 1.0, cut.tasks, stages, partials, round(known.results), 1)


def cuts_of(known: StreamProfile, times: int = 2, noise: np.random.Generator | None = None) -> list[CutPhases]:
    return [seen(known, rows, tasks, noise) for _ in range(times) for rows in SIZES for tasks in (1, CORES)]


@settings(max_examples=40, deadline=None)
@given(costs_of_streams)
def test_the_fit_predicts_each_phase_of_the_cuts_that_it_was_made_of(one: StreamProfile) -> None:
    known = replace(one, costs={phase: replace(cost, scv=0.0) for phase, cost in one.costs.items()})
    found = fit("s", cuts_of(known), CORES, Nature(known.closing))
    for rows in SIZES:
        for tasks in (1, CORES):
            for phase, seconds in seen(found, rows, tasks).seconds.items():
                assert seconds == pytest.approx(seen(known, rows, tasks).seconds[phase], rel=0.02, abs=1e-3)


def test_the_fit_gives_back_the_costs_of_rows_and_cuts() -> None:
    known = stream(scv=0.0)
    found = fit("s", cuts_of(known), CORES, Nature())
    for phase in (Phase.PLAN, Phase.LAUNCH, Phase.MAP, Phase.EXCHANGE, Phase.COLLECT, Phase.COMMIT):
        assert found.cost(phase).fixed == pytest.approx(known.cost(phase).fixed, rel=0.02)
        assert found.cost(phase).each == pytest.approx(known.cost(phase).each, rel=0.05)
    assert (found.cuts, found.most_rows, found.parts, found.results) == (2 * 12, 120_000, 0, 1_000)


def test_without_an_exchange_each_task_brings_partials_of_its_own() -> None:
    whole = stream(scv=0.0, fanout=1.0)
    known = replace(whole, costs={phase: cost for phase, cost in whole.costs.items() if phase is not Phase.EXCHANGE})
    found = fit("s", cuts_of(known), CORES, Nature())
    cut = Cutting(found, StreamTuning(0, None, 1_000, CORES), 40, 40).of(16_000)
    assert (cut.tasks, cut.behind) == (16, 0)
    assert cut.work(Phase.LAUNCH) == pytest.approx(known.cost(Phase.LAUNCH).mean(16), rel=0.02)
    assert cut.work(Phase.COMMIT) == pytest.approx(known.cost(Phase.COMMIT).mean(16 * known.keys.keys(1_000)), rel=0.05)


def test_a_row_comes_at_any_moment_between_two_looks() -> None:
    cost = fit("s", cuts_of(stream()), CORES, Nature(look=0.2)).cost(Phase.LOOK)
    assert Moments.with_scv(cost.mean(0), cost.scv).sigma == pytest.approx(Moments.spread(0.2).sigma)
    assert cost.mean(0) == pytest.approx(Moments.spread(0.2).mean)


def test_tasks_vary_by_no_more_than_they_take() -> None:
    """Where the processor says what a row takes at least, and cuts are off: tasks seem to vary, so to be shorter."""
    known = stream(row=3e-4)
    cuts = []
    for number in range(30):
        cut = seen(known, *((101_000, 101) if number < 10 else (11_700, 7)))
        first, *rest = cut.stages
        cuts.append(replace(cut, number=number, stages=(replace(first, cpu=3e-4 * cut.rows, rows=cut.rows), *rest)))
    cost = fit("s", cuts, CORES, Nature()).cost(Phase.MAP)
    assert cost.scv <= 1
    assert cost.each == pytest.approx(3e-4, rel=0.3)


def test_noise_becomes_spread() -> None:
    known = stream(scv=0.02)
    found = fit("s", cuts_of(known, 60, np.random.default_rng(7)), CORES, Nature())
    for phase in (Phase.PLAN, Phase.MAP, Phase.COMMIT):
        assert found.cost(phase).scv == pytest.approx(0.02, rel=0.3)
    assert found.cost(Phase.MAP).each == pytest.approx(known.cost(Phase.MAP).each, rel=0.1)
    assert found.residuals.form == "measured"
    assert abs(np.mean(found.residuals.values)) < 0.2
    assert np.std(found.residuals.values) == pytest.approx(1.0, abs=0.2)


def test_a_source_of_few_parts_bounds_the_tasks() -> None:
    cuts = [seen(stream(), rows, tasks) for _ in range(2) for rows in SIZES for tasks in (1, 2)]
    assert fit("s", cuts, CORES, Nature()).parts == 2


def test_results_of_a_closing_follow_from_the_windows_that_it_completes() -> None:
    cuts = [replace(cut, results=40, windows=20) for cut in cuts_of(stream())]
    assert fit("s", cuts, CORES, Nature(closing=2.0, windows=3.0)).results == 6.0


def test_windows_that_began_before_all_rows_count_as_if_they_were_full() -> None:
    """A minute of rows is measured, and the windows are of an hour."""
    known, covered = stream(scv=0.0), 36_000
    cuts = [
        replace(cut, results=round(known.keys.keys(covered)), windows=1, before=covered - cut.rows)
        for cut in cuts_of(known)
        if cut.rows < covered
    ]
    rows = sum(cut.rows for cut in cuts) / len(cuts)  # of a closing
    full = fit("s", cuts, CORES, Nature(1.0, span=1e6 / rows, pane=1e6 / rows))
    assert full.results == pytest.approx(
        full.keys.keys(full.fanout * 1e6) * known.keys.keys(covered) / full.keys.keys(full.fanout * covered), rel=0.01
    )
    assert full.results > 1.5 * known.keys.keys(covered)
    for unknown in ([replace(cut, before=None) for cut in cuts], [replace(cut, before=10**6) for cut in cuts]):
        found = fit("s", unknown, CORES, Nature(1.0, span=1e6 / rows, pane=1e6 / rows))
        assert found.results == round(known.keys.keys(covered))


@pytest.mark.parametrize(
    ("cuts", "message"),
    [
        ([], "0 cuts were measured"),
        (cuts_of(stream())[: LEAST - 1], f"{LEAST - 1} cuts were measured, and {LEAST}"),
        ([replace(cut, stages=()) for cut in cuts_of(stream())], "0 cuts were measured"),
        ([seen(stream(), 1_000, 1)] * LEAST, "all have about 1,000 rows"),
        ([seen(stream(), rows, 1) for rows in (90, *[1_000] * LEAST, 30_000)], "all have about 1,000 rows"),
        ([replace(cut, windows=0) for cut in cuts_of(stream())], "no window of 's' was completed"),
    ],
)
def test_too_little_is_refused_with_a_remedy(cuts: list[CutPhases], message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as error:
        fit("s", cuts, CORES, Nature())
    assert error.value.remedy


def test_what_is_fitted_is_kept_as_json() -> None:
    made = Profile("job", Equipment(CORES), {"s": fit("s", cuts_of(stream()), CORES, Nature(limit=2.0))})
    assert Profile.from_json(made.to_json(), "here") == made


def test_where_all_cuts_are_alike_a_row_costs_what_it_did_and_the_rest_is_new() -> None:
    before = fit("s", cuts_of(stream()), CORES, Nature())
    slower = stream(fixed=2.0, scv=0.0)
    alike = [seen(slower, 8_000, tasks) for tasks in (1, CORES)] * LEAST
    found = fit("s", alike, CORES, Nature(), before)
    for phase in (Phase.PLAN, Phase.MAP, Phase.COMMIT):
        assert found.cost(phase).each == pytest.approx(before.cost(phase).each)
    assert found.cost(Phase.PLAN).fixed == pytest.approx(0.12, rel=0.05)
    assert found.keys.keys(100_000) == pytest.approx(before.keys.keys(100_000))
    assert found.most_rows == before.most_rows
    with pytest.raises(DefinitionError, match="all have about"):
        fit("s", alike, CORES, Nature())


def test_one_closing_is_what_a_closing_takes() -> None:
    cuts = [replace(cut, windows=0) for cut in cuts_of(stream())]
    for cut in cuts[1:]:
        for phase in (Phase.CLOSE, Phase.CONSOLIDATE, Phase.DELIVER):
            del cut.seconds[phase]  # type: ignore[attr-defined]
    cuts[0] = replace(cuts[0], windows=1)
    found = fit("s", cuts, CORES, Nature())
    assert found.cost(Phase.CLOSE).fixed == pytest.approx(cuts[0].seconds[Phase.CLOSE])


def test_a_row_takes_at_least_its_processor_time_where_the_clock_shows_nothing() -> None:
    def beside_others(cut: CutPhases) -> CutPhases:
        stages = tuple(replace(each, cpu=0.01 * each.tasks + 5e-6 * cut.rows, rows=cut.rows) for each in cut.stages[:1])
        return replace(cut, stages=stages, seconds={**cut.seconds, Phase.MAP: 1.0})

    found = fit("s", [beside_others(cut) for cut in cuts_of(stream())], CORES, Nature())
    assert found.cost(Phase.MAP).each == pytest.approx(5e-6, rel=0.01)


@pytest.mark.parametrize(
    "tasks, allowed, before, parts",
    [
        (1, 1, 0, 0),  # one task was all that settings allowed: nothing is known of the source
        (1, 4, 0, 1),
        (1, 0, 0, 1),
        (4, 4, 0, 0),
        (1, 1, 3, 3),
        (3, 3, 2, 0),
    ],
)
def test_how_far_a_source_can_be_divided_only_cuts_say_that_had_fewer_tasks_than_allowed(
    tasks: int, allowed: int, before: int, parts: int
) -> None:
    cuts = [CutPhases("s", 1, 100, {}, tasks=tasks, allowed=allowed)]
    assert _parts(cuts, 4, before) == parts


def taken_of(scv: float, wild: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return seconds, rows and tasks of 400 stages on eight cores, of which a share takes twenty times as long."""
    random = np.random.default_rng(seed)
    tasks = random.choice([1, 4, 8], 400)
    rows = random.uniform(1_000, 10_000, 400) * tasks
    mean = 0.02 + 1e-5 * rows / tasks
    longest = [random.gamma(1 / scv, scv, each).max() if scv else 1.0 for each in tasks]
    return mean * np.array(longest) * np.where(random.random(400) < wild, 20.0, 1.0), rows, tasks.astype(float)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([0.0, 0.02, 0.1, 0.3]), st.floats(0, 0.05), st.integers(0, 1_000))
def test_wild_cuts_raise_the_mean_and_not_what_rows_and_tasks_are_taken_for(scv: float, wild: float, seed: int) -> None:
    """Over all seeds a row costs 0.61 to 1.16 of the truth, and the spread of tasks is 0.6 to 1.9 times it."""
    seconds, rows, tasks = taken_of(scv, wild, seed)
    cost = _of_tasks(seconds, rows, tasks, 8, 0.0, 0.0)
    assert 0.55e-5 < cost.each < 1.35e-5
    assert scv / 2 - 0.02 < cost.scv < 2.2 * scv + 0.02
    assert cost.scv < SPREAD
    usual, _, _ = taken_of(scv, 0.0, seed)
    assert cost.fixed >= _of_tasks(usual, rows, tasks, 8, 0.0, 0.0).fixed - 2e-3


def test_what_cuts_vary_together_is_not_without_bounds_the_spread_of_their_tasks() -> None:
    """Every second one takes four times as long: the slowest of eight, however these differ, does not vary so much."""
    seconds, rows, tasks = np.array([1.0, 4.0] * 8), np.linspace(1e3, 1e4, 16), np.full(16, 8.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("transom.planning.fit.SPREAD", math.inf)
        assert _of_tasks(seconds, rows, tasks, 8, 0.0, 0.0).scv < 200
    assert _of_tasks(seconds, rows, tasks, 8, 0.0, 0.0).scv <= SPREAD


def test_for_how_long_executors_say_that_tasks_ran_is_known_beside_the_clock() -> None:
    known = stream(scv=0.0)

    def ran(rows: int, tasks: int) -> CutPhases:
        cut = seen(known, rows, tasks)
        work = Cutting(known, StreamTuning(0, None, -(-rows // tasks), CORES), CORES, CORES).of(rows).work
        shares = zip(cut.stages, ((Phase.MAP, 0.9), (Phase.EXCHANGE, 0.7)), strict=False)
        return replace(cut, stages=tuple(replace(stage, run=share * work(phase)) for stage, (phase, share) in shares))

    found = fit("s", [ran(rows, tasks) for _ in range(2) for rows in SIZES for tasks in (1, CORES)], CORES, Nature())
    assert found.cost(Phase.MAP).ran == pytest.approx(0.9, rel=0.05)
    assert found.cost(Phase.EXCHANGE).ran == pytest.approx(0.7, rel=0.05)
    assert found.cost(Phase.PLAN).ran == 0.0
