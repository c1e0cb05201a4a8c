"""One counting query over files that appear, under overload: Transom, as it is or with another choice, or stock Spark.

A worker's process (`benchmarks.worker`): all in one JVM, so that all of them are compiled and have the same memory.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.pacing import SCHEMA
from benchmarks.streams import Recorder, finished
from benchmarks.transom_runner import raise_failures, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from transom.api.app import App
    from transom.scheduling.shedding import Due, Piece
    from transom.sources.base import Offset, Source


class Counts(Recorder):
    """Keeps what is compared, and nothing of what was left out."""

    def take(self, query: str, table: pa.Table) -> None:
        """Keep a table of results, with the time."""
        super().take(query, table.select(["window_end", "n"]))


QUERY, EVERY = "visits", "every"
"""The query, and one over the same rows before anything is done with them."""
STREAM = "clicks"


def earliest(pieces: Sequence[Piece], dues: Sequence[Due], keep: float) -> list[bool]:
    """Return which pieces are read by earliest deadline first (4.1): in order, each that is in time with those before.

    What carries a watermark is read in any case, and as much of what is due together as must be, as with `chosen`.
    """
    read, taken = [], 0.0
    for piece in pieces:
        read.append(piece.needed or taken + piece.rows <= dues[piece.due].room)
        taken += piece.rows if read[-1] else 0
    for index, due in enumerate(dues):
        here = [number for number, piece in enumerate(pieces) if piece.due == index]
        kept = due.kept + sum(pieces[number].rows for number in here if read[number])
        least = keep * (due.kept + due.dropped + sum(pieces[number].rows for number in here))
        for number in reversed(here):
            if kept < least and not read[number]:
                read[number], kept = True, kept + pieces[number].rows
    return read


def _choose(policy: str) -> None:
    """Let Transom choose pieces by a policy: "edf", or what it does by itself."""
    from transom.engine.control import overload
    from transom.scheduling import shedding

    vars(overload)["chosen"] = earliest if policy == "edf" else shedding.chosen


class _Watched:
    """A source that notes when it was read up to where, and leaves the rest to the source in it."""

    def __init__(self, source: Source, whole: bool) -> None:
        self._source = source
        self.committed: list[float] = []
        if whole:
            self.pieces = 1
            """Pieces of it cannot be left out."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def release(self, oldest_needed: Offset) -> None:
        """Note the time; the engine calls this after each commit."""
        self.committed.append(time.time())
        self._source.release(oldest_needed)


def work(rounds: int) -> str:
    """Return SQL of some work for each row: so many hashes, one of the other."""
    return f"aggregate(sequence(1, {rounds}), string(page), (a, i) -> sha2(concat(a, i), 256))"


def worked(frame: DataFrame, rounds: int) -> DataFrame:
    """Return rows for each of which some work was done, and none was left out."""
    return frame.where(f"length({work(rounds)}) > 0") if rounds else frame


def _app(
    source: _Watched,
    place: Path,
    rounds: int,
    within: dict[str, Any],
    costly: bool,
    beside: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[App, Counts]:
    import transom as tm

    recorder = Counts()
    app = tm.App(session(), checkpoint=str(place / "checkpoint"), **settings)
    events = app.stream(source, event_time="timestamp_micros(at)", name=STREAM)
    rows = events.map(lambda frame: worked(frame, rounds), costly=costly)
    for name, each, limits in ((QUERY, rows, within), (EVERY, events, beside)):
        if limits is not None:
            visits = each.group_by("page").window("1 second").agg(n=tm.count())
            (visits.within(**limits) if limits else visits).to(recorder, name=name)
    return app, recorder


def _source(directory: str, whole: bool = False) -> _Watched:
    import transom as tm

    return _Watched(tm.sources.files(f"{directory}/*.json", schema=SCHEMA), whole)


def capacity(source: str, place: str, rounds: int, cut: int) -> dict[str, Any]:
    """Read a backlog in cuts of at most so many rows.

    Returns:
        `seconds` of each cut but for the first.
    """
    where, files = Path(place), _source(source)
    app, _ = _app(files, where, rounds, {}, False, max_rows_per_cut=cut, trigger=0)
    app.run(once=True)
    shutil.rmtree(where, ignore_errors=True)
    moments = files.committed
    return {"seconds": [after - before for before, after in itertools.pairwise(moments)]}


def profile(source: str, place: str, rounds: int, limit: str, seconds: float, out: str) -> int:
    """Profile the query over a backlog, as `transom profile` does, and write that; return how many cuts it has."""
    from transom.api.profiling import Profiler

    def made() -> App:
        return _app(_source(source), Path(place), rounds, {"limit": limit}, False)[0]

    found = Profiler(made, seconds).run(session(), QUERY, {})
    Path(out).write_text(found.to_json(), encoding="utf-8")
    return found.streams[STREAM].cuts


class _Transom:
    """An application that runs until it is stopped."""

    def __init__(self, source: str, place: Path, rounds: int, within: dict[str, Any], policy: str, **how: Any) -> None:
        _choose(policy)
        self._place = place
        settings = how.pop("settings", {})
        app, self.recorder = _app(_source(source, how.pop("whole", False)), place, rounds, within, **how, **settings)
        self._notes: list[str] = []
        self._running = app.start(on_progress=lambda progress: self._notes.extend(progress.notes))

    def stop(self) -> dict[str, Any]:
        """End it; return what was read, what was left out, and what was said."""
        self._running.stop()
        progress = self._running.wait()
        raise_failures(progress)
        stream = progress.streams[0]
        return {
            "rows": stream.rows,
            "cuts": stream.cuts,
            "notes": self._notes,
            "left_out": self._left_out(),
            "dead": dict(stream.dead_letters),
        }

    def _left_out(self) -> list[str]:
        """Return the names of the files that were not read."""
        letters = [str(path) for path in (self._place / "checkpoint" / "dead-letters" / STREAM).rglob("*.parquet")]
        columns = ["record", "reason"]
        records = ds.dataset(letters, format="parquet").to_table(columns=columns).to_pylist() if letters else []
        return [Path(urlparse(one["record"]).path).name for one in records if one["reason"] == "overload"]


class _Stock:
    """A query of Structured Streaming, which triggers as fast as it can.

    Args:
        source: Where files appear.
        place: For its checkpoint.
        rounds: Work of a row.
        files: Of a micro-batch at most.
    """

    def __init__(self, source: str, place: Path, rounds: int, files: int = 1_000_000) -> None:
        from pyspark.sql import functions as F

        spark = session()
        self.recorder = Counts()
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files)
        rows = read.json(source).withColumn("ts", F.timestamp_micros("at"))
        counted = worked(rows.withWatermark("ts", "0 seconds"), rounds).groupBy(F.window("ts", "1 second"), "page")
        results = counted.count().select(
            "window.start", F.col("window.end").alias("window_end"), F.col("count").alias("n")
        )
        writer = results.writeStream.foreachBatch(lambda frame, _: self.recorder.take(QUERY, frame.toArrow()))
        writer = writer.outputMode("append").trigger(processingTime="0 seconds")
        self.query: StreamingQuery = writer.option("checkpointLocation", str(place / "checkpoint")).start()

    def stop(self) -> dict[str, Any]:
        """End it; nothing is known of it but its results."""
        error = self.query.exception()
        with contextlib.suppress(Exception):  # a batch that is cut short is no matter here
            self.query.stop()
        if error is not None:
            raise RuntimeError(str(error))
        return {"rows": 0, "cuts": 0, "notes": [], "left_out": [], "dead": {}}


def stock_capacity(source: str, place: str, rounds: int, files: int) -> float:
    """Return the seconds in which stock Spark reads a backlog, in micro-batches of so many files."""
    began = time.perf_counter()
    running = _Stock(source, Path(place), rounds, files)
    running.query.processAllAvailable()
    seconds = time.perf_counter() - began
    running.stop()
    shutil.rmtree(Path(place), ignore_errors=True)
    return seconds


_live: list[tuple[Path, _Transom | _Stock]] = []


def start(source: str, place: str, rounds: int, policy: str, limit: str, **how: Any) -> None:
    """Start the query under a policy: "none", "edf", "even", or "stock".

    With `beside` the query over all rows runs, too, with "delay" or "shed" if there is overload.
    """
    where = Path(place)
    if policy == "stock":
        _live.append((where, _Stock(source, where, rounds)))
        return
    shed = {"limit": limit, "on_overload": "shed", "keep": 0.05}
    within = {"limit": limit} if policy == "none" else shed
    if "beside" in how:
        how["beside"] = shed if how["beside"] == "shed" else {"limit": limit}
    _live.append((where, _Transom(source, where, rounds, within, policy, **{"costly": False, **how})))


def stop() -> dict[str, Any]:
    """Stop it, save the results, and return what is known of the run."""
    return finished(*_live.pop())


OPERATIONS: dict[str, Callable[..., Any]] = {
    "capacity": capacity,
    "stock_capacity": stock_capacity,
    "profile": profile,
    "start": start,
    "stop": stop,
}
