"""Running an application with a view of it: `transom run` and `transom demo`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from transom.cli.choice import SparkChoice
from transom.cli.consoles import plain_console
from transom.cli.loading import load, reads_kafka
from transom.cli.quiet import spark_session
from transom.errors import QueryFailedError
from transom.model.time import SystemClock
from transom.views.terminal import make_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from transom.engine.loop.progress import Progress


def run_job(
    job: Path, *, once: bool, close_all: bool, checkpoint: Path | None, spark: SparkChoice, as_json: bool
) -> None:
    """Run the job of a file until it ends or is interrupted.

    Raises:
        TransomError: The job cannot be loaded or run, or one of its queries failed.
    """
    build = load(job, checkpoint)
    spark = spark.with_kafka() if reads_kafka(job) else spark
    run_shown(
        f"transom {job.name}",
        spark,
        as_json,
        lambda session, update: build(session).run(once=once, close_all=close_all, on_progress=update),
        "Correct it, give it a new name, and run again.",
    )


def run_shown(
    name: str,
    spark: SparkChoice,
    as_json: bool,
    run: Callable[[SparkSession, Callable[[Progress], None]], Progress],
    remedy: str,
) -> None:
    """Run what is an application with a view of it, and say how it ended.

    Args:
        name: Names it to Spark.
        spark: Where Spark is.
        as_json: Whether the view is lines of JSON.
        run: Runs it, given a session and what takes its progress; returns the last progress.
        remedy: What to do about a query that failed.

    Raises:
        TransomError: It cannot be run, or one of its queries failed.
    """
    view = make_view(sys.stdout, sys.stderr, as_json)
    view.say("Starting Spark ...")
    try:
        with spark_session(spark, name, view.say) as session, view:
            final = run(session, view.update)
            view.finish(final)
    except KeyboardInterrupt:
        print("Stopped at once; the next run goes on from the last committed micro-batch.", file=sys.stderr)
        raise
    failed = {query.name: query.failure for query in final.queries if query.failure}
    if failed:
        raise QueryFailedError(
            "; ".join(f"query {name!r} failed: {why}" for name, why in failed.items()),
            f"The other queries went on. {remedy}",
        )


def run_demo(out: Path, *, rows: int | None, spark: SparkChoice, as_json: bool) -> None:
    """Replay the flights and print a summary.

    Raises:
        TransomError: The data are not installed, or `out` is not the demo's.
    """
    from transom.demo.board import Board
    from transom.demo.flights import load_flights, paced_events, to_events, write_events
    from transom.demo.queries import build
    from transom.demo.replay import Replay
    from transom.demo.summary import render_summary, summarise
    from transom.demo.workspace import prepare

    clock = SystemClock()
    console = plain_console(stderr=as_json)
    flights = load_flights()
    prepare(out)
    console.print(f"Writing the flights of 2013 as JSON files to {out / 'input'} ...")
    before, files = paced_events(to_events(flights, rows), out / "input")
    count, written = write_events(before, out / "input")
    console.print(f"{written:,} flights in {count:,} files. Starting Spark ...")
    view = make_view(sys.stdout, sys.stderr, as_json)
    try:
        with spark_session(spark, "transom demo", view.say) as session, view:
            board = Board(view.headline, clock)
            started = clock.monotonic()
            app = build(session, out, board)
            coming = sum(text.count("\n") for _, text in files)
            replayed = Replay(app, files, (written, coming), view, clock).run()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        raise
    first = None if board.first is None else board.first - started
    summary = summarise(replayed, out, first)
    if as_json:
        print(json.dumps(summary, default=str))
    else:
        console.print(render_summary(summary))
