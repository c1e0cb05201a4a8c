"""The versions that a report of a fault should name."""

from __future__ import annotations

import importlib.metadata

from transom import __version__
from transom.cli.java import check_java
from transom.errors import SessionError


def version_numbers() -> dict[str, str]:
    """Return the versions of Transom, Spark and Java; starts no Spark."""
    try:
        spark = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:  # as on clusters that bring their own
        from pyspark import __version__ as spark
    try:
        java = str(check_java())
    except SessionError as error:
        java = f"none that Spark can run on: {error.message}"
    return {"Transom": __version__, "Spark": spark, "Java": java}


def versions() -> str:
    """Return them as text, one in each line."""
    return "\n".join(f"{name} {number}" for name, number in version_numbers().items())
