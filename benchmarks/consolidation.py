"""Cost of a window out of complete windows and spans, against merging all of its panes.

The store of panes is driven as the engine drives it: partials in, windows closed by a watermark, old panes dropped. No
Spark, no source; only the merging is measured.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.harness import Run, benchmark, percentile
from transom import count as count_of
from transom import sliding, tumbling
from transom import sum as sum_of
from transom.model.window import WindowSpec
from transom.windows.panes import Grid, Times
from transom.windows.partials import Partial
from transom.windows.store import PaneStore

MINUTE = 60_000_000
HOURS = 10
"""Hours of one-minute partials for the counts of the paper."""
AHEAD = 64
"""Panes that are filled at once, outside the timed part."""
RESERVE, RESERVE_MANY = 20, 90
"""Seconds that must be left of a quick run for one more case, of few keys and of a million."""
LATE_SHARE = 0.01
"""Rows of a late change, as a share of a pane's."""
LONG = pa.int64()
COUNT, SUM = count_of().primitives[0], sum_of("x").primitives[0]
PRIMITIVES = {COUNT: {"count": LONG}, SUM: {"sum": LONG, "count": LONG, "carry": LONG}}
KEYS = pa.schema([("k", LONG)])


def feed(store: PaneStore, panes: Times, keys: Times, rng: np.random.Generator) -> None:
    """Add a partial with random values for each (pane, key)."""
    ones = np.ones(len(keys), np.int64)
    values = rng.integers(-1000, 1000, len(keys))
    states = {COUNT: {"count": ones}, SUM: {"sum": values, "count": ones, "carry": 0 * ones}}
    store.add(panes, pa.table({"k": keys}), states)


def paper(run: Run, name: str, lengths: Sequence[int]) -> tuple[float, float]:
    """Return inputs per hour, ours and naive, of tumbling windows of some minutes over one-minute partials."""
    kinds = [tumbling(f"{length} minutes") for length in lengths]
    store = PaneStore(Grid.of([*kinds, tumbling("1 minute")]), KEYS, PRIMITIVES, kinds)
    rng, keys = np.random.default_rng(1), np.arange(1000)
    wrong = 0
    for minute in range(60 * HOURS):
        feed(store, np.full(len(keys), minute * MINUTE), keys, rng)
        watermark = (minute + 1) * MINUTE
        spans = {span for kind in kinds for span in store.due(kind, watermark - MINUTE, watermark)}
        for span, rows in store.consolidate(spans, watermark).items():
            wrong += not equal(rows, store.panes_of(span))
        store.drop_before(min(kind.late_before(watermark) for kind in kinds))
    run.check([f"{name}: {wrong} windows"] if wrong else [])
    return store.work.inputs / HOURS, store.work.pane_inputs / HOURS


def equal(left: Partial, right: Partial) -> bool:
    """Tell whether two partials hold the same."""
    return np.array_equal(left.ids, right.ids) and all(
        np.array_equal(column, right.states[primitive][name])
        for primitive, state in left.states.items()
        for name, column in state.items()
    )


@dataclass(frozen=True)
class Case:
    """A sliding window and how many keys there are."""

    name: str
    spec: WindowSpec
    per_pane: int
    """Keys in each pane."""
    keys: int
    """Keys to draw them from."""
    late: bool
    """Whether each window that closes is followed by a late change of one of the panes of the next one."""
    windows: int
    """Windows that are timed."""
    samples: int
    """Of these, windows that are also merged from all panes."""


@dataclass(frozen=True)
class Cost:
    """What results of a case cost."""

    merges: list[int]
    seconds: list[float]
    naive_merges: list[int]
    naive_seconds: list[float]
    first_seconds: float
    """The window in which the tree was begun."""
    keys: int
    """Keys of the last window."""


def panes_of_keys(case: Case, rng: np.random.Generator) -> Iterator[Times]:
    """Yield the keys of one pane after the other."""
    every = np.arange(case.per_pane)
    while True:
        yield every if case.keys == case.per_pane else np.unique(rng.integers(0, case.keys, case.per_pane))


def measure(run: Run, case: Case) -> Cost:
    """Slide the window over the panes."""
    spec, rng = case.spec, np.random.default_rng(7)
    store = PaneStore(Grid.of([spec]), KEYS, PRIMITIVES, [spec])
    draw = panes_of_keys(case, rng)
    length = spec.length // spec.slide
    warm_up = length + 2
    cost = Cost([], [], [], [], 0.0, 0)
    sampled = set(np.linspace(0, case.windows - 1, case.samples).astype(int).tolist())
    filled, first, keys = 0, 0.0, 0
    wrong: list[str] = []
    for step in range(warm_up + case.windows):
        watermark = (step + 1) * spec.slide
        while filled <= step:
            chunk = [next(draw) for _ in range(AHEAD)]
            starts = np.repeat(np.arange(filled, filled + AHEAD) * spec.slide, [len(c) for c in chunk])
            feed(store, starts, np.concatenate(chunk), rng)
            filled += AHEAD
        if step < length - 1:
            continue
        span = ((step + 1 - length) * spec.slide, watermark)
        merges = store.work.merges
        begun = time.perf_counter()
        rows = store.consolidate([span], watermark)[span]
        seconds = time.perf_counter() - begun
        if step < warm_up:
            first = max(first, seconds)
            gc.collect()
        else:
            cost.merges.append(store.work.merges - merges)
            cost.seconds.append(seconds)
        if step - warm_up in sampled:
            begun = time.perf_counter()
            naive = store.panes_of(span)
            cost.naive_seconds.append(time.perf_counter() - begun)
            cost.naive_merges.append(length - 1)
            if not equal(rows, naive):
                wrong.append(f"{case.name}: window {step}")
        keys = len(rows)
        store.drop_before(spec.late_before(watermark))
        if case.late and step >= warm_up:
            late = int(rng.integers(step + 2 - length, step + 1))
            chosen = np.unique(rng.integers(0, case.keys, max(1, round(LATE_SHARE * case.per_pane))))
            feed(store, np.full(len(chosen), late * spec.slide), chosen, rng)
    run.check(wrong)
    return Cost(cost.merges, cost.seconds, cost.naive_merges, cost.naive_seconds, first, keys)


def cases(quick: bool) -> Iterator[Case]:
    """Yield all cases; the work repeats after a block of 2,048 windows for the hour and 1,024 for the day."""
    hour, day = sliding("1 hour", every="1 second"), sliding("1 day", every="1 minute")
    for label, per_pane, keys in (("", 10_000, 10_000), (".k100", 100, 100), (".k1m", 10_000, 1_000_000)):
        for name, spec, block in (("slide1h1s", hour, 2048), ("slide24h1m", day, 1024)):
            windows = 2 * block if not quick else block
            if keys == 1_000_000 and quick:
                windows = 32
            for late in (False, True):
                samples = 3 if quick else 20
                yield Case(f"{name}{label}{'.late' if late else ''}", spec, per_pane, keys, late, windows, samples)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    reduced = "half the windows, 32 with a million keys, and 3 windows instead of 20 merged from all panes"
    with benchmark("consolidation", reduced, arguments) as run:
        counts = []
        for name, lengths in (("w5_20", (5, 10, 15, 20)), ("w5_10", (5, 10)), ("w5_30", (5, 10, 15, 20, 25, 30))):
            ours, naive = paper(run, name, lengths)
            scale = 5 if name == "w5_30" else 1
            run.figure(f"{name}.efficient", ours * scale)
            run.figure(f"{name}.naive", naive * scale)
            counts.append((", ".join(map(str, lengths)), 60 * scale, ours * scale, naive * scale))
        run.table(
            "Inputs of windows over one-minute partials", ("windows, min", "minutes", "ours", "all panes"), counts
        )
        table = []
        for case in cases(run.quick):
            if run.left() < (RESERVE if case.keys == case.per_pane else RESERVE_MANY):
                run.say(f"time is short: without {case.name}")
                continue
            cost = measure(run, case)
            mean, naive_mean = statistics.fmean(cost.seconds), statistics.fmean(cost.naive_seconds)
            worst, worst_naive = percentile(cost.seconds, 0.99), percentile(cost.naive_seconds, 0.99)
            run.figure(f"{case.name}.merges_mean", statistics.fmean(cost.merges))
            run.figure(f"{case.name}.merges_p99", percentile(cost.merges, 0.99))
            run.figure(f"{case.name}.merges_max", max(cost.merges))
            run.figure(f"{case.name}.bound", 2 * math.log2(case.spec.length // case.spec.slide))
            run.figure(f"{case.name}.ms_mean", 1000 * mean)
            run.figure(f"{case.name}.ms_p99", 1000 * worst)
            run.figure(f"{case.name}.naive_ms_mean", 1000 * naive_mean)
            run.figure(f"{case.name}.naive_ms_p99", 1000 * worst_naive)
            run.figure(f"{case.name}.time_ratio", naive_mean / mean)
            run.figure(f"{case.name}.begin_ms", 1000 * cost.first_seconds)
            row = (case.name, cost.keys, statistics.fmean(cost.merges), max(cost.merges), cost.naive_merges[0])
            table.append((*row, 1000 * mean, 1000 * worst, 1000 * naive_mean, naive_mean / mean))
            run.say(f"{case.name}: {1000 * mean:.3g} ms against {1000 * naive_mean:.3g} ms")
        columns = ("case", "keys", "merges", "most", "all panes", "ms", "p99 ms", "all panes ms", "ratio")
        run.table("Results of sliding windows", columns, table)


if __name__ == "__main__":
    main()
