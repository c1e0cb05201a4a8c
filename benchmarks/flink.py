"""Flink SQL: all queries in one statement set, so that Flink reads and parses the events once, in one warm JVM.

Flink comes as its Python package's jars, which pip fetches once; nothing of it is installed. It is driven through
py4j, which PySpark brings. Flink is given two things that help it. Its events name their campaign already, because
Flink SQL joins a stream with a table that does not change only by keeping all rows of the stream until the watermark
(the other engines join). And of files, which it reads whole, one for each task, it gets two that hold every other
event, so that both tasks see event time pass alike; else most events would be late.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import topics, ysb
from benchmarks.equipment import CORES
from benchmarks.ysb import QUERIES, Query

VERSION = "2.2.1"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transom" / f"flink-{VERSION}"
CHECKPOINTS = "1 s"
"""How often Flink makes its results and its place in the source durable."""
_OPENED = ("lang", "net", "io", "nio", "util", "util.concurrent", "time", "math", "text")
_AD = re.compile(rb'(?<="ad_id":")[^"]*')


class MissingError(Exception):
    """Flink cannot be had; the text says why."""


def jars() -> Path:
    """Return the directory of Flink's jars; they are fetched once per user.

    Raises:
        MissingError: They cannot be fetched.
    """
    if CACHE.is_dir():
        return CACHE
    partial = CACHE.with_suffix(f".{os.getpid()}.part")
    partial.mkdir(parents=True)
    wanted = ["--no-deps", "--only-binary", ":all:", "--dest", str(partial), f"apache-flink-libraries=={VERSION}"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", *wanted],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode != 0:
            raise MissingError(f"pip cannot fetch Flink: {done.stderr.strip().splitlines()[-1:]}")
        (wheel,) = partial.glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            for name in packed.namelist():
                if name.startswith("pyflink/lib/") and name.endswith(".jar"):
                    (partial / Path(name).name).write_bytes(packed.read(name))
        wheel.unlink()
        partial.rename(CACHE)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return CACHE


@cache
def _java() -> Any:
    """Return the names of a JVM with Flink in it, which ends with this process."""
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    work = Path(os.environ.get("BENCHMARK_WORK", "."))
    settings = work / "flink-conf"
    settings.mkdir(exist_ok=True)
    (settings / "config.yaml").write_text("{}\n")
    os.environ["FLINK_CONF_DIR"] = str(settings)
    (py4j,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
    more = [path for path in os.environ.get("BENCHMARK_FLINK_JARS", "").split(",") if path]
    port = launch_gateway(
        jarpath=str(py4j),
        classpath=os.pathsep.join([*map(str, sorted(jars().glob("*.jar"))), *more]),
        javaopts=["-Xmx4g", *[f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]],
        die_on_exit=True,
        redirect_stdout=sys.stderr,
        redirect_stderr=sys.stderr,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True)).jvm


def _tables() -> Any:
    """Return an environment for one job, in streaming mode."""
    java = _java()
    checkpoints = Path(os.environ.get("BENCHMARK_WORK", ".")).resolve() / "flink-checkpoints"
    conf = java.org.apache.flink.configuration.Configuration()
    for name, value in {
        "parallelism.default": CORES,
        "execution.checkpointing.interval": CHECKPOINTS,
        "execution.checkpointing.dir": checkpoints.as_uri(),
        "table.local-time-zone": "UTC",
    }.items():
        conf.setString(name, value)
    made = java.org.apache.flink.table.api.EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(conf)
    return java.org.apache.flink.table.api.TableEnvironment.create(made.build())


def _with_campaigns(source: Path) -> Iterator[list[bytes]]:
    """Yield the lines of each file, with the campaign in the place of the ad."""
    ads = {row["ad_id"].encode(): row["campaign_id"].encode() for row in ysb.ads().to_pylist()}
    for path in sorted(source.glob("*.json")):
        yield _AD.sub(lambda found: ads[found[0]], path.read_bytes()).splitlines(keepends=True)


def prepare(source: str, output: str) -> None:
    """Write the events of a directory in Flink's form: a file for each of its tasks, in order of event time."""
    target = Path(output)
    if target.is_dir():
        return
    draft = target.with_name(f".{target.name}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    files = [(draft / f"part-{number}.json").open("wb") for number in range(int(CORES))]
    for lines in _with_campaigns(Path(source)):
        for number, file in enumerate(files):
            file.writelines(lines[number :: len(files)])
    for file in files:
        file.close()
    draft.rename(target)


def fill(servers: str, topic: str, source: str) -> None:
    """Send the events of a directory in Flink's form, in order, to the partitions in turn."""
    sender = topics.producer(servers)
    for lines in _with_campaigns(Path(source)):
        topics.send_lines(sender, topic, [line.rstrip(b"\n") for line in lines])


def _from(source: str) -> str:
    """Return the options of the table of events."""
    topic = topics.parsed(source)
    if topic is None:
        return f"'connector' = 'filesystem', 'path' = '{source}', 'format' = 'json'"
    return (
        f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{topic[0]}', 'topic' = '{topic[1]}', "
        "'properties.group.id' = 'flink', 'scan.startup.mode' = 'earliest-offset', "
        "'scan.bounded.mode' = 'latest-offset', 'format' = 'json'"
    )


def _windows(query: Query) -> str:
    """Return the call that gives each view its windows."""
    size = f"INTERVAL '{query.window}' SECOND(3)"
    if query.slide == query.window:
        return f"TUMBLE(TABLE viewed, DESCRIPTOR(ts), {size})"
    return f"HOP(TABLE viewed, DESCRIPTOR(ts), INTERVAL '{query.slide}' SECOND(3), {size})"


def _insert(query: Query) -> str:
    keys = ", ".join(query.keys)
    values = "COUNT(*)" + (", MAX(event_time)" if query.last else "")
    return (
        f"INSERT INTO {query.name} SELECT window_start, window_end, {keys}, {values} "
        f"FROM {_windows(query)} GROUP BY window_start, window_end, {keys}"
    )


def _sink(query: Query, output: Path) -> str:
    keys = "".join(f"{key} STRING, " for key in query.keys)
    values = ", ".join(f"`{value}` BIGINT" for value in query.values)
    return (
        f"CREATE TABLE {query.name} (window_start TIMESTAMP(3), window_end TIMESTAMP(3), {keys}{values}) WITH "
        f"('connector' = 'filesystem', 'path' = '{output / 'json' / query.name}', 'format' = 'json')"
    )


def catchup(source: str, output: str, count: int) -> dict[str, Any]:
    """Run the first `count` queries over a directory that `prepare` wrote, or a topic that `fill` filled.

    Returns:
        `seconds`: from the start of the job to its end, with all results committed.
    """
    place = Path(output).resolve()
    shutil.rmtree(place, ignore_errors=True)
    tables = _tables()
    tables.executeSql(
        "CREATE TABLE events (page_id STRING, ad_id STRING, event_type STRING, event_time BIGINT, "
        "ts AS TO_TIMESTAMP_LTZ(event_time, 3), WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND) "
        f"WITH ({_from(source)})"  # a watermark of ts would say that no other event of this millisecond comes
    )
    tables.executeSql(
        "CREATE TEMPORARY VIEW viewed AS SELECT ad_id AS campaign_id, page_id, event_time, ts "
        "FROM events WHERE event_type = 'view'"
    )
    for query in QUERIES[:count]:
        tables.executeSql(_sink(query, place))
    started = time.perf_counter()
    job = tables.createStatementSet()
    for query in QUERIES[:count]:
        job.addInsertSql(_insert(query))
    getattr(job.execute(), "await")()
    seconds = time.perf_counter() - started
    for query in QUERIES[:count]:
        _as_parquet(place / "json" / query.name, place / query.name)
    return {"seconds": seconds}


def _as_parquet(source: Path, target: Path) -> None:
    """Write results in the form in which they are compared; not timed."""
    rows = [
        json.loads(line)
        for path in sorted(source.rglob("*"))
        if path.is_file() and not path.name.startswith((".", "_"))
        for line in path.read_bytes().splitlines()
    ]
    table = pa.Table.from_pylist(rows)
    moment = pa.timestamp("us")
    for name in ("window_start", "window_end"):
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(moment))
    target.mkdir(parents=True)
    pq.write_table(table, target / "result.parquet")


OPERATIONS: dict[str, Callable[..., Any]] = {"prepare": prepare, "fill": fill, "catchup": catchup}
