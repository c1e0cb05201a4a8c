"""The Spark session: a builder with the settings that must be there from the start, and a private copy for Transom."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from transom.engine.spark.partitions import SHUFFLE_PARTITIONS, with_copies
from transom.engine.spark.pythondaemon import daemon_settings
from transom.engine.spark.silence import silence_exceptions
from transom.errors import SessionError
from transom.model.sessions import is_connect, java_class
from transom.model.signatures import checked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

STATIC_SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "0s",
    "spark.locality.wait.process": "3s",
    "spark.ui.showConsoleProgress": "false",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # costs a dozen calls of Java per expression
}
"""Settings that only take effect when the Spark context starts."""

RUNTIME_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.files.maxPartitionBytes": str(32 << 20),
    "spark.sql.json.enableExactStringParsing": "false",  # as from_json, whichever of the two reads a file
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # others read what is written otherwise as nanoseconds
}
"""Settings of Transom's own session; the user's session keeps its own. Adaptive execution plans each stage anew, which
costs a small job more than it saves. File partitions smaller than Spark's 128 MB let the tasks of a cut end
together."""


OFTEN = {
    "org.apache.spark.sql.functions": ("expr", "col", "lit"),
    "org.apache.spark.sql.classic.SparkSession": ("getActiveSession", "setActiveSession"),
    "functions": ("col",),
    "PythonUtils": ("toSeq",),
    "PythonSQLUtils": (),
    "PythonRDD": (),
    "SerDeUtil": (),
}
"""Classes of Java, and static methods of them, that PySpark asks for with every expression and DataFrame. The JVM looks
for a name without its package in all jars, package by package."""

LOOPBACK = "127.0.0.1"

KAFKA_PACKAGES = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-avro_2.13:4.2.0",
)
"""Spark's Kafka and Avro modules: those of 4.2, which work on Spark 4.3, as its own are not published."""
_IN_SPARK = (
    "at.yawk.lz4:lz4-java",
    "com.google.code.findbugs:jsr305",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "org.slf4j:slf4j-api",
    "org.tukaani:xz",
    "org.xerial.snappy:snappy-java",
)
"""Libraries that they need and Spark has in other versions."""


@checked
def session_builder(*, kafka: bool | str | os.PathLike[str] = False) -> SparkSession.Builder:
    """Return a `SparkSession.builder` with the settings that Transom wants from the start.

    Args:
        kafka: Whether Spark's Kafka and Avro modules are needed. True gets them from Maven's repository when the
            session starts (once; they stay in ~/.ivy2.5.2); a directory has the jars already.

    Spark's web pages, which show data and settings to whoever can reach them, are off;
    `.config("spark.ui.enabled", "true")` turns them on. On a local master these pages and all other ports of Spark then
    listen on the loopback interface only, unless the variable SPARK_LOCAL_IP names another one, and Python workers
    import PySpark as it is installed, not from the archive in it. Files that Spark writes get the permissions of this
    process's umask; Hadoop's own default lets everybody read them.

    Raises:
        SessionError: PySpark cannot be imported, or the directory has no jars.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SessionError(f"PySpark cannot be imported: {error}.", "Install it: pip install transom.") from error

    class Builder(SparkSession.Builder):
        def getOrCreate(self) -> SparkSession:
            for key, value in daemon_settings(self._options).items():
                self.config(key, value)
            with _listening_locally(self._options):
                return super().getOrCreate()

    silence_exceptions()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: SparkSession.Builder = Builder()
    own = {
        "spark.ui.enabled": "false",
        "spark.hadoop.fs.permissions.umask-mode": _umask(),
        "spark.python.unix.domain.socket.dir": "/tmp",  # the name of a container's directory on YARN is too long
    }
    for key, value in {**STATIC_SETTINGS, **own, **kafka_modules(kafka)}.items():
        builder = builder.config(key, value)
    return builder


def _umask() -> str:
    """Return the umask of the process, as Hadoop writes it; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:03o}"


def kafka_modules(kafka: bool | str | os.PathLike[str]) -> dict[str, str]:
    """Return the settings that bring the modules for Kafka."""
    if kafka is False:
        return {}
    if kafka is True:
        return {"spark.jars.packages": ",".join(KAFKA_PACKAGES), "spark.jars.excludes": ",".join(_IN_SPARK)}
    try:
        jars = sorted(Path(kafka).absolute().glob("*.jar"))
    except OSError:
        jars = []
    if not any(jar.name.startswith("spark-sql-kafka") for jar in jars):
        raise SessionError(
            f"session_builder: the directory {os.fspath(kafka)} has no jar spark-sql-kafka.",
            "Give a directory with the jars that the guide names, or True to get them from Maven's repository.",
        )
    return {"spark.jars": ",".join(str(jar) for jar in jars)}


@contextmanager
def _listening_locally(options: Mapping[str, object]) -> Iterator[None]:
    """Let a JVM that starts inside listen on the loopback interface if nobody elsewhere needs it.

    The pages listen where the variable SPARK_LOCAL_IP says, else everywhere; no setting of Spark decides it.
    """
    if "SPARK_LOCAL_IP" in os.environ:
        yield
        return
    if not str(options.get("spark.master", "")).startswith("local"):
        if str(options.get("spark.ui.enabled")).lower() == "true":
            logger.warning(
                "Spark's web pages listen on all interfaces of this machine: set SPARK_LOCAL_IP to the address that "
                "executors reach it by, and protect the port (spark.ui.port, 4040)."
            )
        yield
        return
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    try:
        yield
    finally:
        os.environ.pop("SPARK_LOCAL_IP", None)


def private_session(spark: SparkSession) -> SparkSession:
    """Return a session beside the user's: same context, views, functions and settings, but its own changes.

    It is a copy of this moment: views and settings that the user adds later are not seen. On Spark Connect, where a
    session cannot be copied by every server, the user's own session is used as it is.
    """
    silence_exceptions()
    if is_connect(spark):
        return spark
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession as Classic

    _say_what_is_missing(spark)
    with suppress(Py4JError):  # another PySpark may use other names: then it asks each time
        for name, methods in OFTEN.items():
            java_class(spark, name, *methods)
    private = Classic(spark.sparkContext, spark._jsparkSession.cloneSession())
    for key, value in RUNTIME_SETTINGS.items():
        private.conf.set(key, value)
    private.conf.set(SHUFFLE_PARTITIONS, str(max(1, spark.sparkContext.defaultParallelism)))
    return private


def require_pools(spark: SparkSession) -> None:
    """Make sure that FAIR pools share the cores.

    Raises:
        SessionError: The session has none: its scheduler is FIFO, or it is a Spark Connect session.
    """
    fair = not is_connect(spark) and spark.sparkContext.getConf().get("spark.scheduler.mode", "FIFO") == "FAIR"
    if not fair:
        raise SessionError(
            "policy 'fair' runs all streams at once in FAIR pools, which this Spark session does not have.",
            "Make it with session_builder(), which sets spark.scheduler.mode=FAIR, or choose another policy.",
        )


@contextmanager
def in_pool(spark: SparkSession, pool: str | None) -> Iterator[None]:
    """Run the jobs that this thread starts in a FAIR pool, each of which gets the same share of the cores.

    Args:
        spark: The session.
        pool: Name of the pool; None for no pool.
    """
    if pool is None or is_connect(spark):
        yield
        return
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]


LONGEST = 2.0
"""Seconds that one waits for Spark to cancel jobs, when one ends in any case."""
AGAIN = 0.1
"""Seconds until jobs that have started meanwhile are cancelled, too."""


def cancel_jobs(session: SparkSession, ended: threading.Event) -> None:
    """Cancel the jobs of a session; return when that is done, or soon, whatever Spark does.

    Args:
        session: The session.
        ended: Until it is set, jobs are cancelled again and again: one may be planned, and start only then.
    """
    cancelled = threading.Event()

    def interrupt() -> None:
        for each in with_copies(session):
            each.interruptAll()

    def cancel() -> None:
        try:
            with suppress(Exception):  # Spark may be gone already
                interrupt()
                cancelled.set()
                while not ended.wait(AGAIN):
                    interrupt()
        finally:
            cancelled.set()

    # The calling thread may be in the middle of a call to the JVM, whose connection no other call may use.
    with suppress(RuntimeError):  # the interpreter is ending, and Java with it
        threading.Thread(target=cancel, name="transom-cancel", daemon=True).start()
        cancelled.wait(LONGEST)


@contextmanager
def active_session_kept(spark: SparkSession) -> Iterator[None]:
    """Leave the active session as it was: PySpark activates whatever session makes a DataFrame, also Transom's own."""
    if is_connect(spark):
        yield
        return
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession as Classic

    sessions = java_class(spark, "org.apache.spark.sql.classic.SparkSession")
    before, python_before = sessions.getActiveSession(), Classic._activeSession
    try:
        yield
    finally:
        Classic._activeSession = python_before
        with suppress(Py4JError, OSError):  # after a second Ctrl-C the JVM may be gone
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


_looked_at: set[str] = set()
"""The Spark applications whose settings have been looked at."""


def _say_what_is_missing(spark: SparkSession) -> None:
    """Say once for each Spark application which settings it lacks."""
    if (application := spark.sparkContext.applicationId) in _looked_at:
        return
    _looked_at.add(application)
    settings = spark.sparkContext._jsc.getConf()  # not getConf(), which makes a copy with some 200 calls of the JVM
    missing = [f"{key}={value}" for key, value in STATIC_SETTINGS.items() if not settings.contains(key)]
    if missing:
        logger.warning(
            "The Spark session was not made with transom.session_builder(). Everything works; these settings would "
            "make micro-batches faster: %s.",
            ", ".join(missing),
        )


def is_ansi(spark: SparkSession) -> bool:
    """Tell whether overflow is an error in the session."""
    return str(spark.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"
