"""Panes or windows: what sliding windows cost when they share panes, and when each is computed from the rows.

The taxi trips of DEBS 2015, hour after hour, by groups of taxis. The median tip comes from a sketch for each group; a
trimmed mean is a function of the user's own, whose states Python merges, key by key. Both forms are forced in turn,
then the application decides for itself from what it measures. No group has more tips in a window than the sketch keeps,
so that all results are exact and equal.

Both sides of the crossover are there. Panes win where merging is cheap beside aggregating each trip twice; the user's
function is dearer to merge on the driver than to run once more in the job, so that windows win, by about a tenth, and
the application moves to them. Latency targets and costs that are set decide in `tests/windows/test_arranging.py` and
`tests/exact/test_arrangements.py`.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import transom as tm
from benchmarks.harness import CORES, Run, benchmark, paired_ratio
from transom.api.app import App
from transom.engine.control import adapting
from transom.sinks.inmemory import MemorySink
from transom.windows.components import DEFAULT, Arrangement, key_sets_of
from transom.windows.splitting import Form

DATA = Path(__file__).parents[1] / ".." / "shared" / "data" / "nyc_taxi_debs2015_first_hour.csv"
SCHEMA = "taxi bigint, tip double, at timestamp"
HOUR = 3_600_000_000
WINDOW = ("20 minutes", "10 minutes")
REDUCED = "16 hours of trips instead of 40, and at most 3 repeats instead of 5"


def first_hour(run: Run) -> pa.Table:
    """Return an hour of trips: taxi, tip, and the moment of arrival in microseconds from the hour's start."""
    if DATA.exists():
        with DATA.open() as file:
            rows = [(row[0], float(row[14]), row[3]) for row in csv.reader(file)]
        run.say(f"{len(rows):,} trips of DEBS 2015, repeated hour by hour")
        taxis = pc.dictionary_encode(pa.array([row[0] for row in rows])).indices.to_numpy()
        tips = np.array([row[1] for row in rows])
        minutes = np.array([int(row[2][14:16]) for row in rows], dtype=np.int64)
    else:
        run.say("the trips of DEBS 2015 are not there; 10,000 made up ones, repeated hour by hour")
        r = np.random.default_rng(7)
        taxis, tips = r.integers(0, 7_000, 10_000), r.integers(0, 40, 10_000) / 4
        minutes = np.sort(r.integers(0, 60, 10_000))
    return pa.table({"taxi": taxis.astype(np.int64), "tip": tips, "at": np.sort(minutes) * 60_000_000})


def write_hours(directory: Path, hour: pa.Table, hours: int) -> None:
    """Write one file for each hour; the taxis of one hour are others than those of the next."""
    directory.mkdir(parents=True)
    for number in range(hours):
        taxi = pc.add(hour["taxi"], number * 10_007)
        at = pc.add(hour["at"], number * HOUR).cast(pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"taxi": taxi, "tip": hour["tip"], "at": at}), directory / f"{number:04d}.parquet")


def tips_in_order(trips: pa.Table) -> dict[str, Any]:
    """Return the state of a trimmed mean, which needs all values: the tips, sorted."""
    return {"tips": np.sort(trips.column("tip").to_numpy())}


def merged_tips(states: pa.Table) -> dict[str, Any]:
    """Return one state for several."""
    return {"tips": np.sort(np.concatenate([np.asarray(tips) for tips in states.column("tips").to_pylist()]))}


def trimmed_mean(state: Mapping[str, Any]) -> float:
    """Return the mean without the lowest and the highest tenth; summed exactly, whatever the order."""
    tips = np.asarray(state["tips"])
    cut = len(tips) // 10
    return math.fsum(tips[cut : len(tips) - cut]) / (len(tips) - 2 * cut)


def sketched_median() -> Any:
    """Return the median from a sketch that keeps all tips of a group in a window."""
    return tm.quantile("tip", 0.5, k=4_000)


def user_function() -> Any:
    """Return an aggregate of the user's own, whose states Python merges, key by key."""
    return tm.udaf("tip", tips_in_order, merged_tips, trimmed_mean, "tips array<double>", "double")


@dataclass(frozen=True)
class Case:
    """What is computed: an aggregate for each group of taxis."""

    name: str
    groups: int
    aggregate: Callable[[], Any]


CASES = (
    Case("k3", 3, sketched_median),
    Case("k1000", 1_000, sketched_median),
    Case("k3000", 3_000, sketched_median),
    Case("user", 300, user_function),
)


@dataclass(frozen=True)
class Ran:
    """One run of the application."""

    seconds: float
    results: pa.Table
    form: Form
    """In force at the end."""


def run_once(run: Run, spark: Any, trips: Path, case: Case, form: Form | None) -> Ran:
    """Run the query over all trips; without a form the application decides."""
    sink = MemorySink()
    app = App(spark, run.fresh("checkpoint"), max_rows_per_cut=20_000)
    stream = app.stream(tm.sources.files(str(trips), schema=SCHEMA, format="parquet"), event_time="at")
    windowed = stream.group_by(group=f"taxi % {case.groups}").window(tm.sliding(WINDOW[0], every=WINDOW[1]))
    windowed.agg(trips=tm.count(), tip=case.aggregate()).to(sink, "tips")
    found = [DEFAULT]

    def watch(step: str) -> None:
        loop = app._loop
        assert loop is not None
        (running,) = loop.streams.values()
        if form is not None and step == "cut logged" and running.state.cut == 0:
            names = frozenset(key_set.name for key_set in key_sets_of(running.state.running()))
            loop.learning.follow(running, Arrangement(direct=names if form is Form.DIRECT else frozenset()))
        found[0] = running.compiler.arrangement

    app._on_step = watch
    adapting.FEWEST_ROWS = 10**12 if form is not None else 60_000
    adapting.FEWEST_CUTS = 3
    begin = perf_counter()
    app.run(once=True, close_all=True)
    seconds = perf_counter() - begin
    table = sink.to_table("tips")
    assert table is not None
    order = [("window_start", "ascending"), ("group", "ascending")]
    return Ran(seconds, table.sort_by(order), Form.DIRECT if found[0].direct else Form.SPLIT)


def differences(label: str, one: pa.Table, other: pa.Table) -> list[str]:
    """Return what differs between two results, in words."""
    return [] if one.equals(other) else [f"{label}: {one.num_rows:,} and {other.num_rows:,} rows differ"]


def measure(run: Run, spark: Any, trips: Path, case: Case, repeats: Iterable[int]) -> list[object]:
    """Run both forms and the application's own choice in turn; return a row of the table."""
    seconds: dict[Form | None, list[float]] = {Form.SPLIT: [], Form.DIRECT: [], None: []}
    ended: list[Form] = []
    forms = list(seconds)
    for number in repeats:
        turned = forms[number % 3 :] + forms[: number % 3]  # what runs later runs on a warmer JVM
        ran = {form: run_once(run, spark, trips, case, form) for form in turned}
        for form, one in ran.items():
            seconds[form].append(one.seconds)
            if form is not Form.SPLIT:
                label = "decided" if form is None else form.value
                run.check(differences(f"{case.name}, {label}", one.results, ran[Form.SPLIT].results))
        ended.append(ran[None].form)
        run.say(f"{case.name}: " + ", ".join(f"{seconds[form][-1]:.2f} s" for form in seconds) + f", {ended[-1].value}")
    ratio = paired_ratio(seconds[Form.SPLIT], seconds[Form.DIRECT])
    run.figure(f"{case.name}.split.s", median(seconds[Form.SPLIT]))
    run.figure(f"{case.name}.direct.s", median(seconds[Form.DIRECT]))
    run.figure(f"{case.name}.decided.s", median(seconds[None]))
    run.figure(f"{case.name}.ratio", ratio.median)
    run.figure(f"{case.name}.decided_direct", sum(form is Form.DIRECT for form in ended) / len(ended))
    return [
        case.name,
        f"{case.groups:,}",
        *(f"{median(seconds[form]):.2f}" for form in seconds),
        str(ratio),
        "/".join(form.value for form in ended),
    ]


def main() -> None:
    """Run the benchmark."""
    with benchmark("splitting", REDUCED) as run:
        trips, warm = run.work / "trips", run.work / "warm"
        hour = first_hour(run)
        write_hours(trips, hour, 16 if run.quick else 40)
        write_hours(warm, hour, 4)
        spark = tm.session_builder().master(f"local[{CORES}]").config("spark.ui.enabled", "false").getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        run.say("warm-up")
        for case, form in itertools.product(CASES, Form):
            run_once(run, spark, warm, case, form)
        count = 3 if run.quick else 5
        rows = []
        for number, case in enumerate(CASES):
            reserve = 50.0 * (len(CASES) - number - 1)
            rows.append(measure(run, spark, trips, case, run.repeats(count, reserve)))
        run.table(
            f"{WINDOW[0]} sliding by {WINDOW[1]}: seconds",
            ["case", "groups", "panes", "windows", "decided", "panes over windows", "ended in"],
            rows,
        )
        spark.stop()


if __name__ == "__main__":
    main()
