"""Cost of a micro-batch of 100 rows with 16 queries, against stock Spark's 16 streaming queries."""

from __future__ import annotations

from statistics import fmean, median

from benchmarks import results, ysb
from benchmarks.harness import Run, benchmark, paired_ratio
from benchmarks.worker import Worker
from benchmarks.ysb import QUERIES, Events

EVENTS = Events(rate=100, per_file=100)
"""A second of event time per file: every tenth micro-batch closes windows."""
SIZES = {"transom_runner": (300, 150), "stock": (60, 20)}
"""Micro-batches, and how many of them are warm-up. Stock Spark's 16 queries run 16 in the time of one, so that its JVM
is warm after a tenth of the files."""
QUICK_SIZES = {"transom_runner": (150, 100), "stock": (25, 10)}
REDUCED = "150 micro-batches of Transom and 25 of stock Spark instead of 300 and 60, at most 3 repeats instead of 5"


def typical(seconds: list[float], warm_up: int) -> list[float]:
    """Return milliseconds of the micro-batches after the warm-up, without the closing file's.

    >>> typical([9.0, 2.0, 0.5, 0.25, 7.0], warm_up=2)
    [500.0, 250.0]
    """
    return [each * 1_000 for each in seconds[warm_up:-1]]


def one(run: Run, worker: Worker, files: int, warm_up: int) -> list[float]:
    """Run one engine over `files` files of 100 rows, check its results and return its micro-batch times."""
    source, output = ysb.prefix(run.data, EVENTS, files), run.fresh(worker.engine)
    report = worker.call("fixed", source=source, output=output, count=16)
    end = EVENTS.end_ms(files)
    expected = ysb.oracle(EVENTS, files)
    # Stock closes windows one micro-batch late here, so what only the closing file closes is not compared.
    wrong = results.check(worker.engine, lambda q: output / q.name, QUERIES, expected, end, until_ms=end - 1)
    run.check(wrong)
    return typical(report["seconds"], warm_up)


def main() -> None:
    """Run the benchmark."""
    with benchmark("fixed_cost", REDUCED) as run:
        sizes, most = (QUICK_SIZES, 3) if run.quick else (SIZES, 5)
        times: dict[str, list[list[float]]] = {"transom_runner": [], "stock": []}
        with Worker("transom_runner", run.work) as transom, Worker("stock", run.work) as stock:
            for number in run.repeats(most, reserve=15):
                for worker in (transom, stock):
                    times[worker.engine].append(one(run, worker, *sizes[worker.engine]))
                    milliseconds = median(times[worker.engine][-1])
                    run.say(f"repeat {number + 1}, {worker.engine}: {milliseconds:.0f} ms")
        medians = {engine: [median(each) for each in runs] for engine, runs in times.items()}
        ratio = paired_ratio(medians["stock"], medians["transom_runner"])
        run.figure("batch_ms", median(medians["transom_runner"]))
        run.figure("stock_batch_ms", median(medians["stock"]))
        run.figure("ratio", ratio.median)
        rows = [
            [engine, median(medians[engine]), fmean(step for each in runs for step in each), len(runs)]
            for engine, runs in times.items()
        ]
        run.table("100 rows, 16 queries", ["", "median ms", "mean ms", "repeats"], rows)
        run.say(f"stock / Transom: {ratio}")


if __name__ == "__main__":
    main()
