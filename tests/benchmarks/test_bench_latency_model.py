"""The parts of the latency benchmark that run without Spark: files, settings, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.feed import Arrival
from benchmarks.latency_scores import Compared, Outcome, figures, trends
from benchmarks.latency_settings import foretell, settings
from benchmarks.model_jobs import BASE_MS, JOBS, PIECE, completing_file, oracle, write
from benchmarks.model_runs import Seen, differences
from tests.planning.profiles import profile, stream


def test_a_window_is_completed_by_the_first_file_with_a_row_at_its_end(tmp_path: Path) -> None:
    rate = 333.0
    written = write(JOBS["clicks"], tmp_path, rate, 3.0, tmp_path)
    times = [
        [json.loads(line)["at"] for line in path.read_text().splitlines()] for path in sorted(tmp_path.glob("*.json"))
    ]
    assert sum(map(len, times)) == written
    assert all(BASE_MS + 100 * n <= at < BASE_MS + 100 * (n + 1) for n, some in enumerate(times) for at in some)
    for end in range(BASE_MS + 250, BASE_MS + 2_700, 250):
        first = next(n for n, some in enumerate(times) if some and some[-1] >= end)
        assert completing_file(JOBS["words"], end, rate) == first
        assert completing_file(JOBS["clicks"], end, rate) >= first


def test_settings_are_as_many_and_as_loaded_as_was_promised() -> None:
    assert len(settings()) >= 34
    assert len({setting.label for setting in settings()}) == len(settings())
    assert all(0.3 <= setting.load <= 0.85 for setting in settings())
    assert sum(setting.job != "windowed" for setting in settings()) >= 22


def test_what_is_foretold_follows_the_load() -> None:
    for setting in settings()[:4]:
        known = profile(**{name: stream() for name in JOBS[setting.job].streams})
        found = foretell(setting, known, {"rows0": (0.1, 1e-6)})
        assert found.rate > 0
        assert 0 < found.mean < found.bound
        assert found.mean == pytest.approx(sum(found.phases.values()))
        assert found.rows >= 0.99 * found.rate * max(PIECE, setting.trigger)
        json.dumps(found.to_json())


def outcome(predicted: float, *measured: float, job: str = "words") -> Outcome:
    return Outcome(job, "", Compared(predicted, measured), 2.0, Compared(predicted, measured), 3.0)


def test_figures_count_errors_beyond_half_the_range() -> None:
    found = figures([outcome(1.0, 1.0), outcome(1.3, 0.9, 1.1), outcome(1.2, 0.9, 1.1)])
    assert found["mean.settings"] == 3
    assert found["mean.within15"] == pytest.approx(2 / 3)
    assert found["mean.raw15"] == pytest.approx(1 / 3)
    assert found["p99.within20"] == 1
    assert found["naive.within15"] == 0
    assert found["cantelli.factor"] == pytest.approx(3.0)


def test_trends_are_told_of_settings_of_a_job_that_differ_by_more_than_their_ranges() -> None:
    assert trends([outcome(1.0, 1.0), outcome(2.0, 2.0)]) == [True]
    assert trends([outcome(2.0, 1.0), outcome(1.0, 2.0)]) == [False]
    assert trends([outcome(1.0, 1.0), outcome(2.0, 1.05)]) == []
    assert trends([outcome(1.0, 0.5, 2.0), outcome(2.0, 1.9, 2.1)]) == []
    assert trends([outcome(1.0, 1.0), outcome(2.0, 2.0, job="clicks")]) == []


def test_windows_that_count_something_else_are_told(tmp_path: Path) -> None:
    write(JOBS["clicks"], tmp_path, 500.0, 6.0, tmp_path)
    every = oracle(JOBS["clicks"], tmp_path)
    expected = every["q0"]
    assert expected.total() == 3_000
    ended = [("q0", end, 0, number) for end, number in expected.items() if end < BASE_MS + 5_000]
    assert differences(JOBS["clicks"], ended, every) == []
    assert "instead of" in differences(JOBS["clicks"], ended[1:], every)[0]
    assert differences(JOBS["clicks"], [*ended, ("q0", ended[0][1], 0, 1)], every)


def seen_of(*results: tuple[str, int, float]) -> Seen:
    """Windows of two queries that end every second; files appear for 20 s, and one second later it is stopped."""
    expected = {query: {BASE_MS + 1_000 * end: 1 for end in range(1, 31)} for query in ("q0", "q1")}
    arrived = [Arrival(number, 0, round(1e8 * number)) for number in range(201)]
    seen = [(query, BASE_MS + 1_000 * end, round(1e9 * moment), 1) for query, end, moment in results]
    return Seen(
        JOBS["words"], 1_000.0, {"seen": seen, "cuts": [], "backlog": 0, "stopped": round(21e9)}, arrived, expected
    )


def test_results_that_are_missing_count_as_long_as_they_were_waited_for() -> None:
    """The windows that end at 8 to 17 s count: later ones had less than four seconds."""
    quick = [(query, end, end + 0.5) for query in ("q0", "q1") for end in range(1, 21)]
    assert seen_of(*quick).latencies == pytest.approx([0.5] * 20)
    assert seen_of(*quick).missing == 0
    less = seen_of(*(one for one in quick if one[:2] != ("q1", 10)), ("q1", 10, 13.0), ("q1", 10, 12.0))
    assert sorted(less.latencies)[-1] == pytest.approx(3.0), "a window is complete with the last of its results"
    late = seen_of(*(one for one in quick if one[1] < 16))
    assert (late.missing, sorted(late.latencies)[-4:]) == (4, pytest.approx([4.0, 4.0, 5.0, 5.0]))
