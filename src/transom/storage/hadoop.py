"""Whether Spark has a file system for what is in a store: a jar of its own for each kind, not brought here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from transom.storage.places import Place, spark_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JARS: Mapping[str, str] = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfs": "org.apache.hadoop:hadoop-azure",
    "abfss": "org.apache.hadoop:hadoop-azure",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
}


def require_spark_reads(spark: SparkSession, where: Place, what: str, error: type[Exception]) -> None:
    """Return when Spark has a file system for a place, as far as that is known without using it.

    Args:
        spark: The session; of Spark Connect nothing is known.
        where: The place.
        what: Who needs it, for the message.
        error: What is raised, with a message and a remedy.

    Raises:
        Exception: As `error` says: it has none.
    """
    jvm = getattr(spark, "_jvm", None) if not isinstance(where, Path) else None
    if jvm is None:
        return
    from py4j.protocol import Py4JJavaError

    scheme = spark_uri(where).partition("://")[0]
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, spark._jsc.hadoopConfiguration())
    except Py4JJavaError:
        jar = _JARS.get(scheme)
        version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        named = jar and f"{jar}:{version}" if jar and jar.startswith("org.apache.hadoop") else jar
        raise error(
            f"{what}: Spark has no file system for {scheme}://, by which it would read {where}.",
            f"Start it with --packages {named}, and see the guide's page on places for its settings."
            if named
            else f"Give it the jar that brings {scheme}://.",
        ) from None
