"""The versions that a report of a fault should name."""

from __future__ import annotations

import importlib.metadata

from transom import __version__
from transom.cli.java import check_java
from transom.errors import SessionError


def versions() -> str:
    """Return Transom's, Spark's and Java's version, one in each line; starts no Spark."""
    try:
        spark = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:  # as on clusters that bring their own
        from pyspark import __version__ as spark
    try:
        java = str(check_java())
    except SessionError as error:
        java = f"none that Spark can run on: {error.message}"
    return f"Transom {__version__}\nSpark {spark}\nJava {java}"
