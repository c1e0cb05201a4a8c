"""Thousands of small micro-batches in one run: does anything grow? The baseline is its own beginning."""

from __future__ import annotations

from benchmarks import results, ysb
from benchmarks.harness import benchmark, growth
from benchmarks.worker import Worker
from benchmarks.ysb import QUERIES, Events

EVENTS = Events(rate=10, per_file=100)
"""Ten seconds of event time per file: every micro-batch closes windows; 30 fill the longest."""
WARM_UP = 0.25
"""Share of the samples that is left out before growth is computed."""
SETTINGS = {"snapshot_bytes": 256 << 10}
"""Bound of the checkpoint's log and partials: so small that it is reached many times, also in a quick run."""
FLOOR = 1 << 20
"""Bytes; growth of less than this is measured against it."""
NAMES = ("driver_rss", "workers", "jvm_heap", "cached_bytes", "open_files", "log_bytes", "checkpoint_bytes")
REDUCED = "300 micro-batches, or as many as 3.5 minutes allow, instead of 5,000"


def main() -> None:
    """Run the benchmark."""
    with benchmark("soak", REDUCED) as run:
        files = 300 if run.quick else 5_000
        source, output = ysb.prefix(run.data, EVENTS, files, close=False), run.fresh("soak")
        with Worker("transom_runner", run.work) as transom:
            run.say(f"{files} micro-batches of {EVENTS.per_file} rows, {len(QUERIES)} queries")
            limit = 210 if run.quick else None
            report = transom.call(
                "soak", source=source, output=output, seconds=limit, samples=40 if run.quick else 60, **SETTINGS
            )
        run.say(f"settings: {SETTINGS}")
        samples = report["samples"]
        done = int(report["rows"]) // EVENTS.per_file
        end, closed = EVENTS.end_ms(done), EVENTS.end_ms(done - 1) - 1  # the last watermark may close nothing
        expected = ysb.oracle(EVENTS, done)
        run.check(results.check("soak", lambda q: output / q.name, QUERIES, expected, end, until_ms=closed))
        run.figure("batches", report["batches"])
        rows: list[list[object]] = []
        for name in NAMES:
            values = [float(sample[name]) for sample in samples]
            grown = growth(values, WARM_UP, 0.0 if name == "open_files" else FLOOR)
            run.figure(f"growth.{name}", grown)
            kept = values[round(len(values) * WARM_UP) :]
            rows.append([name, f"{kept[0]:,.0f}", f"{kept[-1]:,.0f}", f"{max(kept):,.0f}", f"{grown:+.2%}"])
        run.table(
            f"{report['batches']} micro-batches, {len(samples)} samples",
            ["", "after warm-up", "end", "most", "growth"],
            rows,
        )


if __name__ == "__main__":
    main()
