"""What a job computes, as a digest: so that a profile of one job is not taken for that of another."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path

from transom.errors import JobFileError
from transom.settings import Settings

ELSEWHERE = ("checkpoint", "settings")
"""Parts of a TOML job that change nothing of what phases cost at given settings."""
OF_RESULTS = ("sink", "sinks", "within", "quantile", "keep")
"""The same of a query."""


def job_digest(path: Path) -> str:
    """Return the digest of a job file: of Python of it all; of TOML without places, limits, and most settings.

    Raises:
        JobFileError: There is no such file, or it is not TOML.
    """
    try:
        text = path.read_bytes().decode("utf-8")
        known = tomllib.loads(text) if path.suffix == ".toml" else text
    except FileNotFoundError:
        raise JobFileError(f"There is no job file {path}.", "Give the path of a TOML or Python file.") from None
    except (OSError, ValueError) as error:
        raise JobFileError(f"{path} cannot be read: {error}.", "Correct it; transom explain says more.") from error
    if isinstance(known, dict):
        settings = known.get("settings")
        settings = settings if isinstance(settings, dict) else {}
        known = {key: value for key, value in known.items() if key not in ELSEWHERE}
        # What a row costs. With tier "auto" the partials begin on the driver, where they are profiled.
        if (lane := settings.get("lane", Settings.lane)) != Settings.lane:
            known["lane"] = lane
        if (tier := settings.get("tier")) == "cluster":
            known["tier"] = tier
        queries = known.get("query")
        if isinstance(queries, list):
            known["query"] = [_computed(query) for query in queries]
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()


def _computed(query: object) -> object:
    if not isinstance(query, dict):
        return query
    return {key: value for key, value in query.items() if key not in OF_RESULTS}
