"""Result latency and processor use while 10,000 events arrive every second, for 1, 4 and 16 queries."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks import feed, latency, results, ysb
from benchmarks.harness import Run, benchmark, percentile
from benchmarks.worker import Worker
from benchmarks.ysb import QUERIES, Events

EVENTS = Events(rate=10_000, per_file=10_000)
WARM = Events(rate=10_000, per_file=5_000)
WARM_FILES = 4
REDUCED = (
    "55 s with 16 queries and 35 s with 1 and 4 instead of 330 s, 25 s of stock Spark with 16, which falls behind, "
    "instead of 60, the first 8 s not counted instead of the first 60 (30 there); "
    "no window that tumbles by five minutes closes in this time"
)


DRAIN = 20.0
"""Seconds that a part takes at least beside those in which it is fed."""


@dataclass(frozen=True)
class Part:
    """One engine under one load; `--only` chooses by its name."""

    engine: str
    queries: int
    seconds: int

    @property
    def name(self) -> str:
        """Prefix of its figures."""
        return f"q{self.queries}" if self.engine == "transom_runner" else f"stock.q{self.queries}"


def parts(quick: bool) -> list[Part]:
    """Return what is run, the engines in turn."""
    short, long = (35, 55) if quick else (330, 330)
    return [
        Part("transom_runner", 1, short),
        Part("stock", 1, short),
        Part("transom_runner", 4, short),
        Part("stock", 4, short),
        Part("transom_runner", 16, long),
        Part("stock", 16, 25 if quick else 60),
    ]


def measure(run: Run, worker: Worker, part: Part, warm_up: int) -> list[object]:
    """Feed one engine in real time, keep its figures, and return its row of the table."""
    place = run.fresh(part.name)
    incoming, output, notes = place / "in", place / "out", place / "arrivals.jsonl"
    incoming.mkdir()
    queries = QUERIES[: part.queries]
    source = ysb.prefix(run.data, EVENTS, part.seconds, close=False)
    worker.call("start", source=incoming, output=output, names=[query.name for query in queries])
    feeder = feed.start(source, incoming, notes, 1.0)
    time.sleep(warm_up)
    began, used = time.monotonic(), latency.cpu_seconds(worker.pid)
    code = feeder.wait()
    cores = (latency.cpu_seconds(worker.pid) - used) / (time.monotonic() - began)
    if code != 0:
        raise RuntimeError(f"The feeding process ended with {code}.")
    time.sleep(1.0)
    report = worker.call("stop", rows=part.seconds * EVENTS.per_file)
    arrived = feed.arrivals(notes)
    found = latency.closings(EVENTS, arrived, output, queries, warm_up)
    missing = latency.expected_closings(EVENTS, part.seconds, queries, warm_up) - len(found)
    seconds = [closing.seconds for closing in found]
    end = EVENTS.end_ms(part.seconds)
    expected = ysb.oracle(EVENTS, part.seconds, queries)
    run.check(results.check(part.name, lambda q: output / q.name, queries, expected, end, until_ms=end - 1))
    p50, p95 = percentile(seconds, 0.5), percentile(seconds, 0.95)
    run.figure(f"{part.name}.p50_s", p50)
    run.figure(f"{part.name}.p95_s", p95)
    run.figure(f"{part.name}.cpu_cores", cores)
    run.figure(f"{part.name}.max_s", max(seconds))
    if "backlog_rows" in report:
        run.figure(f"{part.name}.backlog_rows", report["backlog_rows"])
    slip = max((arrival.visible - arrival.due) / 1e9 for arrival in arrived)
    backlog = report.get("backlog_rows", "")
    return [part.name, len(found), missing, p50, p95, max(seconds), cores, backlog, slip]


def main() -> None:
    """Run the benchmark."""
    with benchmark("paced", REDUCED, parts=[part.name for part in parts(quick=False)]) as run:
        warm_up = 8 if run.quick else 60
        warm = ysb.prefix(run.data, WARM, WARM_FILES)
        chosen = [part for part in parts(run.quick) if part.name in run.parts]
        with ExitStack() as stack:
            workers = {}
            for engine in dict.fromkeys(part.engine for part in chosen):
                workers[engine] = stack.enter_context(Worker(engine, run.work))
                run.say(f"warm-up of {engine}")
                count = 16 if engine == "transom_runner" else 4
                workers[engine].call("warm", source=warm, output=run.fresh("warm"), count=count)
            rows = []
            for part in chosen:
                if run.left() < part.seconds + DRAIN:
                    run.say(f"time is short: {part.name} is left out")
                    continue
                run.say(f"{part.name}: {part.seconds} s at {EVENTS.rate:,} events/s")
                rows.append(measure(run, workers[part.engine], part, min(warm_up, part.seconds // 2)))
        titles = [
            "",
            "windows",
            "missing",
            "p50 s",
            "p95 s",
            "max s",
            "cores",
            "backlog rows",
            "feeder slip s",
        ]
        run.table("Result latency: closing file visible to result visible", titles, rows)


if __name__ == "__main__":
    main()
