import json
import math
from pathlib import Path

import pytest
from benchmarks import feed, fixed_cost, harness
from benchmarks.harness import Run


def test_the_interval_holds_the_ratio_and_narrows_with_agreement() -> None:
    wide = harness.paired_ratio([2.0, 4.0, 3.0], [1.0, 1.0, 1.0])
    narrow = harness.paired_ratio([3.0, 3.1, 2.9], [1.0, 1.0, 1.0])
    assert wide.low < 3 < wide.high
    assert wide.low < narrow.low < 3 < narrow.high < wide.high
    assert math.isnan(harness.paired_ratio([2.0], [1.0]).low)
    with pytest.raises(ValueError, match="no pair"):
        harness.paired_ratio([], [1.0])


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(i) for i in range(100, 0, -1)]
    assert harness.percentile(values, 0.5) == 50
    assert harness.percentile(values, 0.95) == 95
    assert harness.percentile([7.0], 0.95) == 7


def test_growth_compares_thirds_after_the_warm_up() -> None:
    assert harness.growth([100, 1, 1, 1, 1, 1, 1, 1], warm_up=1 / 8) == 0
    assert harness.growth([100, 1, 1, 1, 1, 2, 2], warm_up=1 / 7) == 1
    assert harness.growth([0.0] * 4, warm_up=0) == 0
    assert harness.growth([0.0, 0.0, 5.0], warm_up=0, floor=10) == 0.5
    with pytest.raises(ValueError, match="too few"):
        harness.growth([1.0, 2.0], warm_up=0)


def test_micro_batches_of_the_warm_up_and_the_closing_file_are_left_out() -> None:
    assert fixed_cost.typical([9.0, 2.0, 0.5, 0.25, 7.0], warm_up=2) == [500.0, 250.0]


def test_a_closed_loop_shows_one_file_at_a_time(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    for name in ("a.json", "b.json"):
        (source / name).write_text(name)
    seen: list[list[str]] = []

    def done(number: int) -> bool:
        seen.append(sorted(path.name for path in target.iterdir()))
        return True

    assert len(feed.one_by_one(source, target, done, lambda: True)) == 2
    assert seen == [["a.json"], ["a.json", "b.json"]]


def test_the_last_line_is_json_and_equal_needs_a_comparison() -> None:
    run = Run("x", True, Path(), Path())
    assert json.loads(run.last_line())["equal"] is False
    run.check([])
    run.figure("rate", 123_456.789)
    run.figure("small", 0.0123456)
    run.figure("none", math.inf)
    line = json.loads(run.last_line())
    assert line["equal"] is True
    assert line["figures"] == {"rate": 123_457, "small": 0.01235, "none": None}
    assert line["versions"]["numpy"]
    run.check(["q00 differs"])
    assert json.loads(run.last_line())["equal"] is False


def test_what_a_run_found_is_written_with_how_it_came_about(tmp_path: Path) -> None:
    out = tmp_path / "x.json"
    with harness.benchmark("x", "less", ["--quick", "--out", str(out)]) as run:
        run.check([])
        run.figure("rate", 5.0)
    found = json.loads(out.read_text())
    assert found["figures"] == {"rate": 5.0}
    assert found["command"] == f"python -m benchmarks.x --quick --out {out}"
    assert found["began"].endswith("UTC")
    assert found["equal"] is True


def test_a_claim_holds_does_not_or_cannot_be_decided_by_the_run_s_own_interval() -> None:
    run = Run("x", True, Path(), Path())
    assert "verdicts" not in json.loads(run.last_line())
    for claim, interval in {"a": (1.0, 1.9), "b": (2.1, 3.0), "c": (1.0, 3.0), "d": (math.nan, math.nan)}.items():
        run.verdict(claim, interval, 2.0)
    line = json.loads(run.last_line())["verdicts"]
    assert [line[claim]["verdict"].split()[0] for claim in "abcd"] == ["holds", "does", "cannot", "cannot"]
    assert line["d"] == {"verdict": "cannot be decided by this run", "low": None, "high": None, "bar": 2.0}


def test_quick_repeats_stop_when_time_is_short() -> None:
    run = Run("x", True, Path(), Path())
    assert list(run.repeats(3, reserve=0)) == [0, 1, 2]
    assert list(run.repeats(3, reserve=harness.QUICK_SECONDS)) == [0]
