import json
import math
from pathlib import Path

import pytest
from benchmarks import fixed_cost, harness
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


def test_steps_leave_out_the_warm_up_and_the_closing_file() -> None:
    assert fixed_cost.steps([1.0, 2.0, 2.5, 2.75, 9.0], warm_up=2) == [500.0, 250.0]


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


def test_quick_repeats_stop_when_time_is_short() -> None:
    run = Run("x", True, Path(), Path())
    assert list(run.repeats(3, reserve=0)) == [0, 1, 2]
    assert list(run.repeats(3, reserve=harness.QUICK_SECONDS)) == [0]
