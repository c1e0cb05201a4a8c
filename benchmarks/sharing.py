"""Time to catch up against the number of queries that share panes and keys: 1, 4, 16 and 64."""

from __future__ import annotations

from functools import cache
from statistics import median

import pyarrow as pa

from benchmarks import results, ysb
from benchmarks.harness import Run, benchmark, paired_ratio
from benchmarks.worker import Worker
from benchmarks.ysb import MANY_QUERIES, ONE_QUERY, QUERIES, Events

EVENTS = Events(rate=10_000, per_file=50_000)
WARM = Events(rate=10_000, per_file=5_000)
WARM_FILES = 4
COUNTS = (1, 4, 16, 64)
REDUCED = "1 M events instead of 3 M, stock Spark with 0.2 M instead of 1.2 M, and at most 3 repeats instead of 5"


@cache
def expected(files: int) -> dict[str, pa.Table]:
    """Return the right results over the first files; computed once."""
    return ysb.oracle(EVENTS, files, (*MANY_QUERIES, ONE_QUERY))


def time_transom(run: Run, worker: Worker, count: int, files: int) -> float:
    """Run so many queries, compare every result, and return the seconds."""
    queries = (ONE_QUERY,) if count == 1 else MANY_QUERIES[:count]
    output = run.fresh("out") / "transom"
    report = worker.call("shared", source=ysb.prefix(run.data, EVENTS, files), output=output, count=count)
    label = f"transom, {count} queries"
    run.check(results.check(label, lambda q: output / q.name, queries, expected(files), EVENTS.end_ms(files)))
    run.say(f"{label}, {files} files: {report['seconds']:.2f} s")
    return float(report["seconds"])


def time_stock(run: Run, worker: Worker, files: int) -> float:
    """Run the 16 queries on stock Spark, compare the results, and return the seconds.

    Four files per trigger and the default state store are the fastest of the settings that `catchup` tries for 16.
    """
    output = run.fresh("out") / "stock"
    source = ysb.prefix(run.data, EVENTS, files)
    report = worker.call(
        "catchup", source=source, output=output, count=len(QUERIES), files_per_trigger=4, store="default"
    )
    run.check(results.check("stock", lambda q: output / q.name, QUERIES, expected(files), EVENTS.end_ms(files)))
    run.say(f"stock, {len(QUERIES)} queries, {files} files: {report['seconds']:.2f} s")
    return float(report["seconds"])


def main() -> None:
    """Run the benchmark."""
    with benchmark("sharing", REDUCED) as run:
        files, stock_files, repeats = (20, 4, 3) if run.quick else (60, 24, 5)
        run.say(f"{files * EVENTS.per_file:,} events in {run.data}")
        for number in (files, stock_files):
            ysb.prefix(run.data, EVENTS, number)
        warm = ysb.prefix(run.data, WARM, WARM_FILES)
        seconds: dict[int, list[float]] = {count: [] for count in COUNTS}
        stock: list[float] = []
        same: list[float] = []
        with Worker("transom_runner", run.work) as transom:
            run.say("warm-up of Transom")
            for count in COUNTS:
                transom.call("shared", source=warm, output=run.fresh("warm"), count=count)
                time_transom(run, transom, count, files)
            for _ in run.repeats(repeats, 150):
                for count in COUNTS:
                    seconds[count].append(time_transom(run, transom, count, files))
            with Worker("stock", run.work) as spark:
                run.say("warm-up of stock Spark")
                spark.call("warm", source=warm, output=run.fresh("warm"), count=len(QUERIES))
                for _ in run.repeats(2 if run.quick else 3, 5):
                    same.append(time_transom(run, transom, len(QUERIES), stock_files))
                    stock.append(time_stock(run, spark, stock_files))
        growth = paired_ratio(seconds[64], seconds[1])
        ratio = paired_ratio(stock, same)
        for count, values in seconds.items():
            run.figure(f"q{count}.s", median(values))
        run.figure("q64_over_q1", growth.median)
        run.figure("q16.stock_ratio", ratio.median)
        rows: list[list[object]] = [
            [f"q{count}.s", f"{median(values):.2f}", f"{min(values):.2f}", f"{max(values):.2f}", len(values)]
            for count, values in seconds.items()
        ]
        rows.append(["q64_over_q1", str(growth), "", "", growth.repeats])
        rows.append([f"q16.stock_ratio, {stock_files} files", str(ratio), "", "", ratio.repeats])
        run.table("Sharing", ["figure", "median", "least", "most", "repeats"], rows)


if __name__ == "__main__":
    main()
