"""Running an application with a view of it: `transom run` and `transom demo`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console

from transom.cli.loading import load
from transom.cli.quiet import spark_session
from transom.cli.views import make_view
from transom.errors import QueryFailedError
from transom.model.time import SystemClock


def run_job(job: Path, *, once: bool, close_all: bool, checkpoint: Path | None, master: str, as_json: bool) -> None:
    """Run the job of a file until it ends or is interrupted.

    Raises:
        TransomError: The job cannot be loaded or run, or one of its queries failed.
    """
    build = load(job, checkpoint)
    view = make_view(sys.stdout, sys.stderr, as_json)
    try:
        with spark_session(master, f"transom {job.name}", view.say) as spark, view:
            final = build(spark).run(once=once, close_all=close_all, on_progress=view.update)
            view.finish(final)
    except KeyboardInterrupt:
        print("Stopped at once; the next run goes on from the last committed micro-batch.", file=sys.stderr)
        raise
    failed = {query.name: query.failure for query in final.queries if query.failure}
    if failed:
        raise QueryFailedError(
            "; ".join(f"query {name!r} failed: {why}" for name, why in failed.items()),
            "The other queries went on. Mend it, give it a new name, and run again.",
        )


def run_demo(out: Path, *, rows: int | None, master: str, as_json: bool) -> None:
    """Replay the flights and print a summary.

    Raises:
        TransomError: The data are not installed, or `out` is not the demo's.
    """
    from transom.demo.flights import load_flights, to_events, write_events
    from transom.demo.queries import build
    from transom.demo.summary import render_summary, summarise
    from transom.demo.workspace import prepare

    clock = SystemClock()
    console = Console(stderr=as_json)
    flights = load_flights()
    prepare(out)
    console.print(f"Writing the flights of 2013 as a stream of JSON files to {out / 'input'} ...")
    files, written = write_events(to_events(flights, rows), out / "input")
    console.print(f"{written:,} flights in {files:,} files. Starting Spark ...")
    view = make_view(sys.stdout, sys.stderr, as_json)
    try:
        with spark_session(master, "transom demo", view.say) as spark, view:
            app = build(spark, out)
            started = clock.monotonic()
            final = app.run(once=True, close_all=True, on_progress=view.update)
            took = clock.monotonic() - started
            if not as_json:
                view.finish(final)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        raise
    summary = summarise(final, out, took)
    if as_json:
        print(json.dumps(summary, default=str))
    else:
        console.print(render_summary(summary))
