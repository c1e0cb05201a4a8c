"""CPU of making partials without Spark, by several libraries, against all of both lanes, and what a bare job costs.

The readers (`native_readers`) run in this process, one thread each; the lanes are `catchup` in a process of its own,
their CPU that of Python and the JVM, sinks and checkpoint included. All run in turn over the same files.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import pyarrow as pa

from benchmarks import fixed_cost, native_readers, results, ysb
from benchmarks.catchup import EVENTS, WARM, WARM_FILES, expected
from benchmarks.harness import Run, benchmark
from benchmarks.latency import cpu_seconds
from benchmarks.native_readers import READERS, TASKS, Task
from benchmarks.worker import Worker
from benchmarks.ysb import QUERIES

FILES, QUICK_FILES = 20, 12
REPEATS, QUICK_REPEATS = 5, 3
JOBS, WARM_JOBS = 100, 20
REDUCED = "0.6 M events instead of 1 M, at most 3 repeats instead of 5, and no micro-batches of Spark's lane"


def lane(run: Run, worker: Worker, queries: int, files: int, name: str = "spark") -> float:
    """Return CPU seconds per million events of a whole run in a lane, driver and sinks included."""
    source, output = ysb.prefix(run.data, EVENTS, files), run.fresh("out")
    before = cpu_seconds(worker.pid)
    report = worker.call("catchup", source=source, output=output, count=queries, lane=name)
    used = cpu_seconds(worker.pid) - before
    chosen = QUERIES[:queries]
    run.check(results.check(name, lambda q: output / q.name, chosen, expected(files), EVENTS.end_ms(files)))
    run.check([] if report["native"] == (name == "auto") else [f"lane {name}: not the one that was asked for"])
    return used / (files * EVENTS.per_file) * 1e6


def reader(run: Run, name: str, task: Task, files: list[Path]) -> float:
    """Return CPU seconds per million events of a reader."""
    before = time.process_time()
    for path in files:
        found = READERS[name](path, task)
    used = time.process_time() - before
    right = native_readers.expected(EVENTS, len(files) - 1, task)
    run.check([] if found.sorted.equals(right) else [f"{name}: partials of {files[-1].name}"])
    return used / (len(files) * EVENTS.per_file) * 1e6


def measure(run: Run, worker: Worker, queries: int, files: int, repeats: int) -> list[object]:
    """Time Spark's lane and all readers in turn; return a row of the table."""
    directory = ysb.generate(run.data, EVENTS, files)
    paths = [directory / f"events-{number:06}.json" for number in range(files)]
    used: dict[str, list[float]] = {}
    for number in run.repeats(repeats, reserve=40):
        used.setdefault("spark_lane", []).append(lane(run, worker, queries, files))
        used.setdefault("native_lane", []).append(lane(run, worker, queries, files, "auto"))
        for name in READERS:
            if not number:
                reader(run, name, TASKS[queries], paths[:1])
            used.setdefault(name, []).append(reader(run, name, TASKS[queries], paths))
        run.say(f"{queries} queries: " + ", ".join(f"{name} {values[-1]:.2f}" for name, values in used.items()))
    for name, values in used.items():
        run.figure(f"q{queries}.{name}_cpu_s_per_m", median(values))
    return [queries, *(median(values) for values in used.values())]


def bare(run: Run, worker: Worker) -> None:
    """Measure a job of one stage and one task that reads 100 rows in Python, without Spark SQL."""
    source = ysb.prefix(run.data, fixed_cost.EVENTS, 1) / "events-000000.json"
    worker.call("bare_jobs", path=source, jobs=WARM_JOBS)
    before = cpu_seconds(worker.pid)
    taken = worker.call("bare_jobs", path=source, jobs=JOBS)["seconds"]
    used = (cpu_seconds(worker.pid) - before) / JOBS
    run.figure("bare_job_ms", median(taken) * 1_000)
    run.figure("bare_job_cpu_ms", used * 1_000)
    run.say(f"a bare job: {median(taken) * 1_000:.1f} ms, {used * 1_000:.1f} ms of CPU")
    if not run.quick:
        files, warm_up = fixed_cost.SIZES["transom_runner"]
        run.figure("batch_ms", median(fixed_cost.one(run, worker, files, warm_up)))


def main() -> None:
    """Run the benchmark."""
    pa.set_cpu_count(1)
    with benchmark("native", REDUCED) as run:
        files, repeats = (QUICK_FILES, QUICK_REPEATS) if run.quick else (FILES, REPEATS)
        ysb.prefix(run.data, EVENTS, files)
        with Worker("transom_runner", run.work) as worker:
            warm = ysb.prefix(run.data, WARM, WARM_FILES)
            worker.call("warm", source=warm, output=run.fresh("warm"), count=16)
            lane(run, worker, 16, files)
            lane(run, worker, 16, files, "auto")
            rows = [measure(run, worker, queries, files, repeats) for queries in TASKS]
            bare(run, worker)
        run.table("CPU seconds per million events", ["queries", "spark_lane", "native_lane", *READERS], rows)


if __name__ == "__main__":
    main()
