"""Transom with many queries, keys or streams, in a worker's process (`benchmarks.worker`)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import scale_jobs, transom_runner
from benchmarks.transom_runner import add_queries, raise_failures, session

if TYPE_CHECKING:
    from transom.api.app import App


def _timed(build: Callable[[Path], App], output: str) -> dict[str, Any]:
    """Run an application on all that there is, with what it takes to build it."""
    session()
    shutil.rmtree(output, ignore_errors=True)
    started = time.perf_counter()
    app = build(Path(output))
    built = time.perf_counter()
    final = app.run(once=True, close_all=True)
    ended = time.perf_counter()
    raise_failures(final)
    return {
        "seconds": ended - started,
        "build_s": built - started,
        "native": all(stream.native_cuts == stream.cuts for stream in final.streams),
        "result_rows": sum(query.result_rows for query in final.queries),
    }


def _of_queries(source: str, output: Path, count: int) -> App:
    return transom_runner.build(transom_runner.watched(source, None), output, scale_jobs.queries(count))


def queries(source: str, output: str, count: int) -> dict[str, Any]:
    """Run so many queries over all files; return the seconds until the last result, and more."""
    return _timed(lambda place: _of_queries(source, place, count), output)


def streams(sources: list[str], output: str) -> dict[str, Any]:
    """Run a stream with queries of its own for each directory; return as `queries` does."""
    import transom as tm

    def build(place: Path) -> App:
        app = tm.App(session(), checkpoint=str(place / "_checkpoint"))
        for number, source in enumerate(sources):
            add_queries(
                app,
                transom_runner.watched(source, None),
                place / str(number),
                scale_jobs.queries(scale_jobs.OF_A_STREAM),
                name=f"events{number}",
                prefix=f"s{number}-",
            )
        return app

    return _timed(build, output)


def keys(source: str, output: str) -> dict[str, Any]:
    """Run a count and a sum per key over short and long windows of readings; return as `queries` does."""
    import transom as tm

    def build(place: Path) -> App:
        app = tm.App(session(), checkpoint=str(place / "_checkpoint"))
        readings = app.stream(
            tm.sources.files(f"{source}/*.json", schema=scale_jobs.SCHEMA),
            event_time="timestamp_millis(at)",
            watermark=tm.watermark("0 seconds"),
            name="readings",
        )
        for length in scale_jobs.WINDOWS:
            sums = readings.group_by("key").window(tm.tumbling(f"{length} seconds"))
            sums.agg(n=tm.count(), total=tm.sum("value")).to(
                tm.sinks.parquet(str(place / f"w{length}")), name=f"w{length}"
            )
        return app

    return _timed(build, output)


def start(source: str, output: str, count: int) -> None:
    """Start so many queries over a directory in which files appear."""
    transom_runner.begin(_of_queries(source, Path(output), count))


def profile(source: str, count: int, seconds: float) -> str:
    """Return the profile of so many queries over the files of a directory, as JSON."""
    from transom.api.profiling import Profiler

    def build() -> App:
        return _of_queries(source, Path(source).parent / "_no_results", count)

    return Profiler(build, seconds, print).run(session(), f"{count} queries", {}).to_json()


OPERATIONS: dict[str, Callable[..., Any]] = {
    "queries": queries,
    "streams": streams,
    "keys": keys,
    "start": start,
    "stop": transom_runner.stop,
    "profile": profile,
}
