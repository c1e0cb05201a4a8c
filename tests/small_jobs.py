"""The smallest jobs in TOML, and what builds one without Spark."""

from __future__ import annotations


def small_job(query: str, schema: str = "at timestamp", source: str = "") -> str:
    """Return a job of one source of JSON files and one query, both with what is said of them besides."""
    return f"""
checkpoint = "ckpt"

[source]
files = "in/*.json"
schema = "{schema}"
event_time = "at"
{source}

[[query]]
{query.strip()}
"""


class NoSession:
    """Building an application asks nothing of it."""

    createDataFrame = None
