"""An application whose slow query gets more than its memory holds; run as a script.

    python memory_app.py DIRECTORY BOUND

The rows of a fast query, some kilobytes each, are read by a slow one. The driver may take `ROOM` bytes more than at the
start, say the settings, and it is killed as soon as it takes `HARD`, as in a container. BOUND is the setting
memory_bound; with 1 nothing holds the fast query back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

import transom as tm
from transom.engine.control.memory import resident_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOON = 1_700_000_000_000_000
WINDOWS, IDS = 80, 50
WIDE = "repeat(md5(concat_ws(' ', id, unix_micros(at))), 3000) AS text"
SLOW = 60
"""How often the slow query computes the checksum of each row."""
ROOM, HARD = 200 << 20, 300 << 20


def rows() -> pa.Table:
    """Return the input: a row of each id in each window of a second, and one that closes the last window."""
    windows, ids = np.divmod(np.arange(WINDOWS * IDS), IDS)
    at = np.append(NOON + windows * 1_000_000 + ids * 100, NOON + (WINDOWS + 1) * 1_000_000)
    return pa.table({"id": np.append(ids, IDS), "at": pa.array(at).cast(pa.timestamp("us", "UTC"))})


def widened(df: DataFrame) -> DataFrame:
    """Return the rows with a text of 96 kB each."""
    return df.selectExpr("id", "at", WIDE)


def slowed(df: DataFrame) -> DataFrame:
    """Return the rows with what takes long to compute."""

    def checksum(text: str) -> int:
        return max(zlib.crc32(text.encode()) for _ in range(SLOW))

    @F.pandas_udf("bigint")
    def check(texts: pd.Series) -> pd.Series:
        return texts.map(checksum)

    return df.select("*", check("text").alias("sums"))


def main(directory: Path, bound: float) -> None:
    """Run the application, and print its results with the most memory that it took."""
    builder = tm.session_builder().master("local[8]").config("spark.driver.memory", "1500m")
    spark = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.createDataFrame(pa.table({"a": [1]})).toArrow()
    source, sink = tm.sources.memory("id bigint, at timestamp"), tm.sinks.memory()
    source.add(rows())
    before = resident_bytes()
    app = tm.App(
        spark,
        directory,
        memory_bound=bound,
        memory_limit=before + ROOM,
        trigger=0,
        max_rows_per_cut=75,  # what is under way comes on top of the bound: some copies of a cut
        cycle="1 minute",
    )
    stream = app.stream(source, event_time="at", watermark="0 seconds")
    wide = stream.map(widened).group_by("id").window("1 second").agg(text=tm.max("text")).results("wide")
    slow = wide.map(slowed).window("1 second").agg(n=tm.count(), sums=tm.sum("sums"))
    slow.to(sink, "slow")
    most, modes, notes, ended = before, 0, [], threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.01):
            most = max(most, resident_bytes())
            if most > before + HARD:
                os.kill(os.getpid(), signal.SIGKILL)

    def progress(now: tm.Progress) -> None:
        nonlocal modes
        modes += now.memory_mode
        notes.extend(now.notes)

    threading.Thread(target=watch, daemon=True).start()
    begun = time.monotonic()
    app.run(once=True, on_progress=progress)
    ended.set()
    found = [[row["n"], row["sums"]] for row in sorted(sink.rows("slow"), key=lambda row: row["window_start"])]
    took = time.monotonic() - begun
    print(json.dumps({"rows": found, "most": most - before, "modes": modes, "notes": notes, "took": took}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
