"""How far Transom goes: 1 to 1,000 queries, 100 to 10 million keys, 1 to 8 streams; in virtual time much further."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]
import pyarrow as pa

from benchmarks import feed, latency, results, scale_jobs, scale_virtual, ysb
from benchmarks.harness import Run, benchmark, percentile
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.scale_jobs import VIEWS, Readings
from benchmarks.worker import Worker
from benchmarks.ysb import Events
from transom.planning.profile import Profile

PARTS = ("queries", "closings", "keys", "streams", "virtual")
COUNTS = (1, 16, 64, 256, 1_000)
KEYS = (100, 10_000, 1_000_000, 10_000_000)
STREAMS = (1, 2, 4, 8)
STOCK = (1, 16)
"""Queries that stock Spark runs, too; 16 over fewer files. It has a stream for each query, so that it needs hours for
64 of them."""
LIVE = Events(rate=10_000, per_file=10_000)
EXECUTORS = (10, 20, 50, 100, 200, 400)
LIMIT = 10.0
"""Seconds within which the results of 10,000 queries are due, in the mean."""
MANY, RATE = 10_000, 1_000_000.0
REDUCED = (
    "0.5 M events instead of 3 M, up to a million keys instead of ten, closings of 16 and 256 queries for 30 s instead "
    "of those of all for 150 s, no stock Spark, and profiles of 20 s instead of 120"
)


class Peak:
    """The most memory that a process and those below it hold together, while this is entered.

    Pages that several of them share count once: their proportional set size is summed up.
    """

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._process, self._ended = psutil.Process(pid), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            total = 0
            for process in [self._process, *self._process.children(recursive=True)]:
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:
                    continue
            self.bytes = max(self.bytes, total)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()


class Taken(NamedTuple):
    """What a run over all of its input took."""

    rows_per_s: float
    cpu_s_per_m: float
    """Seconds of processor time per million rows, of all processes."""
    build_s: float
    """Until all queries were defined, before it began to run."""
    memory_mb: float
    """Of all processes together, at most."""
    result_rows: float


def timed(run: Run, worker: Worker, name: str, rows: int, operation: str, **arguments: Any) -> Taken:
    """Let Transom run once, and keep what it took."""
    before = latency.cpu_seconds(worker.pid)
    with Peak(worker.pid) as peak:
        report = worker.call(operation, **arguments)
    used = latency.cpu_seconds(worker.pid) - before
    run.check([] if report["native"] else [f"{name}: partials were made in the other lane"])
    taken = Taken(
        rows / float(report["seconds"]),
        used / rows * 1e6,
        float(report["build_s"]),
        peak.bytes / 1e6,
        float(report["result_rows"]),
    )
    for figure, value in taken._asdict().items():
        run.figure(f"{name}.{figure}", value)
    run.say(f"{name}: {taken.rows_per_s:,.0f} rows/s, {taken.cpu_s_per_m:.2f} CPU s per million")
    return taken


Found = dict[int, Taken]


def warm_up(run: Run, worker: Worker) -> None:
    """Run what is measured once, so that it is compiled."""
    run.say("warm-up")
    source = ysb.prefix(run.data, VIEWS, 4)
    worker.call("queries", source=source, output=run.fresh("warm"), count=16)
    readings = scale_jobs.write_readings(run.data, Readings(KEYS[1], 100_000, 100_000), 2)
    worker.call("keys", source=readings, output=run.fresh("warm"))


def measure_queries(run: Run, worker: Worker) -> Found:
    """Run more and more queries over the same events, each result compared; and stock Spark where it can."""
    files, found = (10 if run.quick else 60), Found()
    source = ysb.prefix(run.data, VIEWS, files)
    for count in COUNTS:
        queries = scale_jobs.queries(count)
        expected = ysb.oracle(VIEWS, files, queries)
        place = run.fresh("out")
        found[count] = timed(
            run, worker, f"q{count}", files * VIEWS.per_file, "queries", source=source, output=place, count=count
        )
        run.check(results.check(f"{count} queries", lambda q: place / q.name, queries, expected, VIEWS.end_ms(files)))  # noqa: B023
    if not run.quick:
        measure_stock(run, files)
    return found


def measure_stock(run: Run, files: int) -> None:
    """Run what stock Spark can of the same, with the settings that `catchup` finds best."""
    with Worker("stock", run.work) as stock:
        warm = ysb.prefix(run.data, VIEWS, 1)
        stock.call("warm", source=warm, output=run.fresh("warm"), count=4)
        for count in STOCK:
            some = files if count == 1 else files // 10
            report = stock.call(
                "catchup",
                source=ysb.prefix(run.data, VIEWS, some),
                output=run.fresh("stock") / "out",
                count=count,
                files_per_trigger=4,
                store="default",
            )
            run.figure(f"stock.q{count}.rows_per_s", some * VIEWS.per_file / float(report["seconds"]))


def measure_closings(run: Run, worker: Worker) -> dict[int, float]:
    """Feed more and more queries in real time; return the 95 % quantile of the result latency of each."""
    counts, seconds, warm_up = ((16, 256), 30, 10) if run.quick else (COUNTS, 150, 60)
    found = {}
    for count in counts:
        place = run.fresh("live")
        incoming, output, notes = place / "in", place / "out", place / "arrivals.jsonl"
        incoming.mkdir()
        queries = scale_jobs.queries(count)
        source = ysb.prefix(run.data, LIVE, seconds, close=False)
        worker.call("start", source=incoming, output=output, count=count)
        code = feed.start(source, incoming, notes, 1.0).wait()
        if code != 0:
            raise RuntimeError(f"The feeding process ended with {code}.")
        worker.call("stop", rows=seconds * LIVE.per_file)
        closed = [each.seconds for each in latency.closings(LIVE, feed.arrivals(notes), output, queries, warm_up)]
        end = LIVE.end_ms(seconds)
        expected = ysb.oracle(LIVE, seconds, queries)
        run.check(
            results.check(f"{count} live", lambda q: output / q.name, queries, expected, end, until_ms=end - 1)  # noqa: B023
        )
        found[count] = percentile(closed, 0.95)
        run.figure(f"q{count}.closings", len(closed))
        run.figure(f"q{count}.p50_s", percentile(closed, 0.5))
        run.figure(f"q{count}.p95_s", found[count])
        run.say(f"{count} queries live: {len(closed):,} closings, p95 {found[count]:.2f} s")
    return found


def measure_keys(run: Run, worker: Worker) -> Found:
    """Run a count and a sum over more and more keys, each result compared."""
    found = Found()
    for keys in [keys for keys in KEYS if keys <= 1_000_000 or not run.quick]:
        files = 10 if run.quick else max(30, keys // 100_000)
        shape = Readings(keys, 100_000, 100_000)
        source, place, rows = scale_jobs.write_readings(run.data, shape, files), run.fresh("out"), files * 100_000
        found[keys] = timed(run, worker, f"k{keys}", rows, "keys", source=source, output=place)
        for window in scale_jobs.WINDOWS:
            actual = _sums(results.read(place / f"w{window}"))
            wrong = results.differences(actual, scale_jobs.right_sums(shape, rows, window))
            run.check([f"{keys} keys, {window} s: {wrong}"] if wrong else [])
    return found


def _sums(table: pa.Table) -> pa.Table:
    """Return results as `scale_jobs.right_sums` does."""
    start = table["window_start"]
    micros = start.cast(pa.timestamp("us", start.type.tz)).cast(pa.int64())
    columns = {"window_start": micros, **{name: table[name].cast(pa.int64()) for name in ("key", "n", "total")}}
    return pa.table(columns).sort_by([("window_start", "ascending"), ("key", "ascending")]).combine_chunks()


def measure_streams(run: Run, worker: Worker) -> Found:
    """Divide the same events among more and more streams, each with queries of its own, each result compared."""
    files, found = (16 if run.quick else 64), Found()
    queries = scale_jobs.queries(scale_jobs.OF_A_STREAM)
    for count in STREAMS:
        place, each = run.fresh("out"), files // count
        edges = [(number * each, (number + 1) * each) for number in range(count)]
        sources = [str(ysb.prefix(run.data, VIEWS, last, start=first)) for first, last in edges]
        found[count] = timed(
            run, worker, f"s{count}", files * VIEWS.per_file, "streams", sources=sources, output=str(place)
        )
        for number, (first, last) in enumerate(edges):
            where, end = place / str(number), VIEWS.end_ms(last)
            expected = ysb.oracle(VIEWS, last, queries, start=first)
            label = f"stream {number} of {count}"
            run.check(results.check(label, lambda q: where / q.name, queries, expected, end))  # noqa: B023
    return found


def foretell(run: Run, worker: Worker) -> tuple[scale_virtual.Reach, ...]:
    """Profile two numbers of queries, and tell what 10,000 do on machines that are not here."""
    seconds, counts = (20 if run.quick else 120), (64, 256)
    source = ysb.prefix(run.data, LIVE, 100 if run.quick else 600)  # small files: cuts of any size can be made
    made = []
    for count in counts:
        made.append(Profile.from_json(worker.call("profile", source=source, count=count, seconds=seconds), "profile"))
        run.say(f"{count} queries are profiled")
    profile = scale_virtual.many(made[0], made[1], counts, MANY)
    found = tuple(scale_virtual.reaches(profile, EXECUTORS, LIMIT, RATE))
    for reach in found:
        run.figure(f"e{reach.executors}.rate", reach.rate)
    enough = next((reach.executors for reach in found if reach.rate >= RATE), None)
    run.figure("executors_for_a_million", float("nan") if enough is None else enough)
    half = scale_virtual.many(made[0], made[1], counts, MANY // 2)
    halves = tuple(scale_virtual.reaches(half, tuple(number // 2 for number in EXECUTORS), LIMIT, RATE))
    second = scale_virtual.second_driver(found, halves)
    run.figure("second_driver.executors", float("nan") if second is None else second)
    rows = [
        [
            str(one.executors),
            f"{one.rate:,.0f}",
            f"{two.rate:,.0f}",
            one.bound,
            *(f"{x:.2f}" for x in one.loads.values()),
        ]
        for one, two in zip(found, halves, strict=True)
    ]
    columns = ["executors", "rows/s", "with two drivers", "longest phase", *found[-1].loads]
    run.table(f"{MANY:,} queries, results within {LIMIT:.0f} s", columns, rows)
    return found


def table(run: Run, title: str, found: Found) -> None:
    """Print what runs took."""
    rows = [[f"{number:,}", *(float(each) for each in taken)] for number, taken in found.items()]
    run.table(title, ["", "rows/s", "CPU s/M", "build s", "memory MB", "result rows"], rows)


def panels(taken: dict[str, Found]) -> list[Panel]:
    """Return the speed over what grows."""
    return [
        Panel(Form.LINES, f"by {what}", what, "rows/s", (_speed(found),), x_log=True, y_log=True)
        for what, found in taken.items()
    ]


def _speed(found: Found) -> Series:
    return Series("transom", list(found), [taken.rows_per_s for taken in found.values()])


def drawn(taken: dict[str, Found], closings: dict[int, float], reached: Sequence[scale_virtual.Reach]) -> Figure:
    """Return the figure of what was run."""
    found = panels(taken)
    if closings:
        slow = Series("transom", list(closings), list(closings.values()))
        found.append(Panel(Form.LINES, "closings", "queries", "p95, seconds", (slow,), x_log=True))
    if reached:
        rates = Series("transom", [each.executors for each in reached], [each.rate for each in reached])
        levels = {"1 M": RATE}
        found.append(
            Panel(Form.LINES, f"{MANY:,} queries, foretold", "executors", "rows/s", (rates,), levels=levels, x_log=True)
        )
    text = "Rows per second and latency over the number of queries, keys, streams and executors."
    return Figure("scale", "How far Transom goes", text, tuple(found))


MEASURED = {"queries": measure_queries, "keys": measure_keys, "streams": measure_streams}


def main() -> None:
    """Run the benchmark."""
    with benchmark("scale", REDUCED, figures=True, parts=PARTS) as run, Worker("scale_runner", run.work) as worker:
        warm_up(run, worker)
        taken = {what: measured(run, worker) for what, measured in MEASURED.items() if what in run.parts}
        closings = measure_closings(run, worker) if "closings" in run.parts else {}
        reached = foretell(run, worker) if "virtual" in run.parts else ()
        for what, found in taken.items():
            table(run, f"More {what}", found)
        run.draw(drawn(taken, closings, reached))


if __name__ == "__main__":
    main()
