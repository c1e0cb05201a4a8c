"""The jobs on which the latency model is tried: word counts of Wikipedia, and sessions of a web server's clients.

Rows come in files of a tenth of a second each. Every file holds the rows of its tenth, so that a window is completed by
the first file with a row at its end or later.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.wide_problems import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from transom.api.app import App
    from transom.api.streams import Stream
    from transom.sinks.base import WindowResults

PIECE = 0.1
"""Seconds of the rows of a file."""
_PIECE_MS = round(1_000 * PIECE)
BASE_MS = 1_750_000_000_000
"""Event time of the first row."""
WORDS_OF_A_ROW = 12
CLIENTS = 40
"""Copies of each client of the access log."""
GAP = 2.0
"""Seconds without a request after which a session has ended."""
LOG = "apache_access_10k.log"


@dataclass(frozen=True)
class Job:
    """A job, and how its queries are."""

    name: str
    length: int
    """Milliseconds of a window; 0 for sessions."""
    every: int
    """Milliseconds from one query's windows to the next one's."""
    queries: int
    apart: bool = False
    """Whether each query has a stream of its own."""
    tier: str = "driver"

    @property
    def streams(self) -> list[str]:
        """The names of its streams."""
        return [f"rows{number}" for number in range(self.queries)] if self.apart else ["rows0"]


JOBS = {
    job.name: job
    for job in (
        Job("words", 1_000, 250, 4),
        Job("apart", 1_000, 250, 4, apart=True),
        Job("files", 1_000, 250, 4, tier="cluster"),
        Job("windowed", 30_000, 2_000, 15),
        Job("clicks", 0, 0, 1),
    )
}
"""`files` is `words` with its partials in files of the executors."""


# ---- rows


@cache
def _sentences(data: Path) -> tuple[str, ...]:
    words = [re.sub(r"[^\w'-]", "", word).lower() or "-" for word in text_of(data)]
    return tuple(" ".join(words[at : at + WORDS_OF_A_ROW]) for at in range(0, len(words), WORDS_OF_A_ROW))


@cache
def _requests(data: Path) -> tuple[tuple[str, str], ...]:
    """Return client and path of the requests; without the file some that are made up."""
    if not (data / LOG).is_file():
        drawn = random.Random(7)
        return tuple((f"c{int(drawn.paretovariate(0.7)) % 2_000}", f"/{drawn.randrange(300)}") for _ in range(10_000))
    found = []
    for line in (data / LOG).read_text(encoding="utf-8", errors="replace").splitlines():
        client, path = line.split(" ", 1)[0], re.search(r'"[A-Z]+ (\S+)', line)
        found.append((client, path.group(1) if path else "-"))
    return tuple(found)


def _rows(job: Job, data: Path) -> Iterator[str]:
    """Return what follows the time in each row, without end."""
    drawn = random.Random(11)
    while True:
        if job.name == "clicks":
            for client, path in _requests(data):
                yield f'"client": "{client}.{drawn.randrange(CLIENTS)}", "path": {json.dumps(path)}}}'
        else:
            for text in _sentences(data):
                yield f'"text": {json.dumps(text)}}}'


def write(job: Job, directory: Path, rate: float, seconds: float, data: Path) -> int:
    """Write the files of so many seconds of event time, and return their rows.

    Args:
        job: The job.
        directory: Where they are written, as 000000.json and so on.
        rate: Rows in a second.
        seconds: Of event time.
        data: Where real texts are.
    """
    directory.mkdir(parents=True, exist_ok=True)
    contents, row = _rows(job, data), 0
    for number in range(round(seconds / PIECE)):
        with (directory / f"{number:06d}.json").open("w") as file:
            while (at := _millis(row, rate)) < (number + 1) * _PIECE_MS:
                file.write(f'{{"at": {BASE_MS + at}, {next(contents)}\n')
                row += 1
    return row


def _millis(row: int, rate: float) -> int:
    """Return the event time of a row, milliseconds from the first one on."""
    return int(1_000 * row / rate)


def completing_file(job: Job, window_end_ms: int, rate: float) -> int:
    """Return the number of the file whose rows complete a window; of a session that with a row after its end.

    >>> completing_file(JOBS["words"], BASE_MS + 1_000, 1_000.0)
    10
    """
    if job.name == "clicks":
        window_end_ms += 1
    end = window_end_ms - BASE_MS
    row = max(0, int(end * rate / 1_000) - 1)
    while _millis(row, rate) < end:
        row += 1
    return _millis(row, rate) // _PIECE_MS


def oracle(job: Job, directory: Path) -> dict[str, Counter[int]]:
    """Return of each query what its windows count, by their end in milliseconds; also of those that have not ended."""
    found: dict[str, Counter[int]] = {f"q{number}": Counter() for number in range(job.queries)}
    sessions: dict[str, tuple[int, int]] = {}
    gap = round(1_000 * GAP)
    for path in sorted(directory.glob("*.json")):
        for row in map(json.loads, path.read_text().splitlines()):
            at: int = row["at"]
            if job.name == "clicks":
                last, count = sessions.get(row["client"], (at, 0))
                if at > last + gap:
                    found["q0"][last + gap] += count
                    count = 0
                sessions[row["client"]] = at, count + 1
            else:
                words = len(row["text"].split(" "))
                for number in range(job.queries):
                    offset = number * job.every
                    found[f"q{number}"][at - (at - offset) % job.length + job.length] += words
    for last, count in sessions.values():
        found["q0"][last + gap] += count
    return found


# ---- the application


def build(job: Job, spark: SparkSession, source: Path, checkpoint: Path, take: Callable[[WindowResults], None]) -> App:
    """Return the application.

    Args:
        job: The job.
        spark: The session.
        source: Where the files are, or appear.
        checkpoint: Its checkpoint.
        take: Told the results of all queries.
    """
    import transom as tm

    app = tm.App(spark, checkpoint=checkpoint, policy="fcfs", tier=job.tier)
    schema = "at bigint, client string, path string" if job.name == "clicks" else "at bigint, text string"
    files = tm.sources.files(f"{source}/*.json", schema=schema)

    def stream(name: str) -> Stream:
        return app.stream(files, event_time="timestamp_millis(at)", watermark=tm.watermark("0 seconds"), name=name)

    streams = [stream(name) for name in job.streams]
    for number in range(job.queries):
        name, rows = f"q{number}", streams[number % len(streams)]
        if job.name == "clicks":
            query = rows.group_by("client").window(tm.session_window(f"{GAP} seconds")).agg(n=tm.count())
        else:
            words = rows.map(words_of)
            window = tm.tumbling(f"{job.length} ms", offset=f"{number * job.every} ms")
            query = words.group_by("word").window(window).agg(n=tm.count())
        query.to(tm.sinks.foreach(take), name=name)
    return app


def words_of(frame: DataFrame) -> DataFrame:
    """Return the words of the texts, each with the time of its row."""
    return frame.selectExpr("at", "explode(split(text, ' ')) as word")
