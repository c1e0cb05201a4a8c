"""The kinds of Spark session: classic, or Spark Connect; and the classes of Java behind a classic one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_connect(spark: SparkSession) -> bool:
    """Tell whether a session is one of Spark Connect, whose driver, context and pools are in another process."""
    return not hasattr(spark, "_jsparkSession")


def is_local(spark: SparkSession) -> bool:
    """Tell whether the driver of a classic session is its only executor."""
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")


def java_class(spark: SparkSession, name: str, *methods: str) -> Any:
    """Return a class of Java, which is asked for once: py4j would ask at every use.

    Args:
        spark: A classic session.
        name: Its full name, or its name in a package that PySpark imports.
        methods: Static methods of it that are asked for once, too, whoever calls them.
    """
    jvm: Any = spark.sparkContext._jvm
    found = getattr(jvm, name)
    if name not in vars(jvm):
        setattr(jvm, name, found)
    for method in methods:
        if method not in vars(found):
            setattr(found, method, getattr(found, method))
    return found
