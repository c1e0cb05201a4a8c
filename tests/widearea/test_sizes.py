import numpy as np
import pytest
from datasketches import update_theta_sketch

from transom.errors import DefinitionError
from transom.widearea.sizes import NOMINAL, MeasuredSizes, Observed
from transom.widearea.topology import INTERVALS

SPANS = (1, 4, 12, 60)


def site(first, keys, rows=300, ticks=6, per_key=12.0):
    """Observe a site whose rows have keys `first` to `first + keys`, evenly."""
    rng = np.random.default_rng(first)
    drawn = rng.integers(first, first + keys, rows * 60)
    distinct = {n: len(np.unique(drawn[: rows * n])) for n in {*range(1, ticks + 1), *INTERVALS}}
    sketches = {}
    for span in SPANS:
        sketch = update_theta_sketch(NOMINAL)
        for key in drawn[: rows * span].tolist():
            sketch.update(int(key))
        sketches[span] = sketch.compact().serialize()
    truth = np.array([distinct[n] for n in INTERVALS]) * per_key
    return drawn, truth, Observed({n: distinct[n] * per_key for n in range(1, ticks + 1)}, sketches)


def test_longer_spans_and_merges_follow_from_sketches():
    (a, alone, seen), (b, _, other) = site(0, 1_000), site(500, 1_000)
    sizes = MeasuredSizes({"A": seen, "B": other})
    merged = [12.0 * len(np.union1d(a[: 300 * n], b[: 300 * n])) for n in INTERVALS]
    assert len(seen.sketches[60]) < 5_000
    assert sizes.of(frozenset("A")) == pytest.approx(alone, rel=0.2)
    assert sizes.of(frozenset("AB")) == pytest.approx(merged, rel=0.2)


@pytest.mark.parametrize("keys", [50, 1_000, 100_000])
def test_sizes_are_monotone_concave_and_never_more_than_apart(keys):
    sizes = MeasuredSizes({"A": site(0, keys)[2], "B": site(keys // 2, keys)[2]})
    for names in ("A", "B", "AB"):
        size = np.append(0.0, sizes.of(frozenset(names)))
        slopes = np.diff(size) / np.diff(np.append(0.0, INTERVALS))
        assert (slopes >= -1e-9).all()
        assert (np.diff(slopes[1:]) <= 1e-6 * slopes[0]).all()
    assert (sizes.of(frozenset("AB")) <= sizes.of(frozenset("A")) + sizes.of(frozenset("B")) + 1e-9).all()


def test_a_line_is_taken_only_where_it_fits():
    straight = MeasuredSizes({"A": Observed({n: 430.0 + 40.0 * n for n in INTERVALS})})
    assert straight.of(frozenset("A")) == pytest.approx([430.0 + 40.0 * n for n in INTERVALS])
    curved = MeasuredSizes({"A": Observed({n: 100.0 * n**0.5 for n in INTERVALS})})
    assert curved.of(frozenset("A")) == pytest.approx([100.0 * n**0.5 for n in INTERVALS])


def test_without_sketches_nothing_is_promised():
    sizes = MeasuredSizes({"A": Observed({1: 10.0}), "B": Observed({1: 10.0})})
    assert sizes.of(frozenset("AB"))[-1] == pytest.approx(1_200.0)
    with pytest.raises(DefinitionError, match="'A'"):
        MeasuredSizes({"A": Observed({})})
    with pytest.raises(DefinitionError, match="'C'"):
        sizes.of(frozenset("AC"))
