"""Spark's own way to S3: jars of 700 MB, and settings for a server that is not Amazon's."""

from __future__ import annotations

import os
from pathlib import Path

from tests import fetching

VERSION = "3.5.0"
"""That of Spark's Hadoop."""


def jars() -> Path:
    """Return the directory of the jars: what TRANSOM_S3A_JARS names, or from Maven.

    Raises:
        MissingError: They cannot be fetched.
    """
    named = os.environ.get("TRANSOM_S3A_JARS")
    needed = [fetching.artifact(f"org.apache.hadoop:hadoop-aws:{VERSION}")]
    return Path(named) if named else fetching.jars(f"s3a-{VERSION}", needed)


def settings(endpoint: str) -> dict[str, str]:
    """Return settings of Spark for a server; it finds the keys in the environment."""
    given = {
        "endpoint": endpoint,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "endpoint.region": "us-east-1",
    }
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in given.items()}
