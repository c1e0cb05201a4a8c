"""The `[[query]]` tables of a TOML job: which rows a query reads, and what it makes of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from transom.api.shedding import least_share
from transom.errors import DefinitionError
from transom.jobs.keys import Keys, Table, named_table
from transom.jobs.kinds import SinkSpec, parse_sinks
from transom.jobs.windows import check_windows

KEYS = (
    *("name", "source", "from", "late_rows_of", "watermark", "where", "select", "group_by", "windows", "aggregates"),
    *("having", "results", "rename"),
    *("early", "lateness", "fill", "for_at_most", "within", "quantile", "on_overload", "keep"),
    *("rows", "partition_by", "sink", "sinks", "own_stream"),
)
_OF_LIMITS = ("quantile", "on_overload", "keep")
_OF_WINDOWS = (
    "group_by",
    "windows",
    "aggregates",
    "having",
    "results",
    "rename",
    "early",
    "lateness",
    "fill",
    "for_at_most",
    "within",
    *_OF_LIMITS,
)
_FILES = ("parquet", "json", "csv")


@dataclass(frozen=True)
class QuerySpec:
    """One `[[query]]` table."""

    name: str
    source: str | None
    """Name of the source or join; None for a query over another one."""
    windows: tuple[Any, ...]
    """Durations as text, or tables as in the file."""
    aggregates: tuple[str, ...]
    sinks: tuple[SinkSpec, ...]
    """Empty for a query that only others read."""
    parent: str | None = None
    """Name of the query whose results it reads."""
    parent_early: bool = False
    """Whether it reads early results of that, too."""
    late_rows_of: str | None = None
    """Name of the query whose late rows it reads."""
    watermark: str = "0 seconds"
    """How far the watermark of these stays behind."""
    rows: bool = False
    """Whether it writes the rows as they are, without windows."""
    partition_by: tuple[str, ...] = ()
    """Columns whose values are directories of the rows."""
    group_by: tuple[str, ...] = ()
    where: str | None = None
    select: tuple[str, ...] = ()
    having: str | None = None
    """Condition over the aggregates."""
    results: tuple[tuple[str, str], ...] = ()
    """Name and expression of each column of the results; empty for all."""
    rename: tuple[tuple[str, str], ...] = ()
    """New and old names."""
    fill: str | None = None
    for_at_most: str | None = None
    """How long keys without rows are filled in."""
    within: tuple[str, float] | None = None
    """Latency limit and quantile."""
    on_overload: Literal["delay", "shed"] = "delay"
    keep: float | None = None
    """Least share of a window's rows that is read under overload."""
    early: str | None = None
    lateness: str | None = None
    own_stream: bool = False
    """Whether it reads its source apart from the other queries."""


def parse_query(file: str, table: Table, sources: Sequence[str], above: Sequence[QuerySpec]) -> QuerySpec:
    """Return the query that a table describes.

    Args:
        file: Name of the file, for errors.
        table: The table.
        sources: Names of the sources and joins.
        above: The queries that stand before this one.

    Raises:
        JobFileError: A key is unknown, missing or of the wrong type, or does not go with another one.
    """
    keys, parent_early = _with_plain_from(named_table(file, "query", table, KEYS))
    source, parent, late = _reads(keys, sources, above)
    rows = keys.get("rows", bool, False)
    windows = [] if rows else keys.need("windows", list)
    check_windows(keys, windows)
    limit, quantile = keys.get("within", str), keys.get("quantile", (float, int))
    given = next((key for key in _OF_LIMITS if limit is None and key in table), None)
    if given is not None:
        raise keys.error(f"{given} is given without within", 'Add for example within = "2 seconds".')
    if "for_at_most" in table and "fill" not in table:
        raise keys.error("for_at_most is given without fill", 'Add fill = "previous", or fill = "zero".')
    on_overload, keep = keys.get("on_overload", str, "delay"), keys.get("keep", (float, int))
    try:
        least_share(on_overload, keep, (), ())
    except DefinitionError as error:
        raise keys.error(error.message.rstrip("."), error.remedy) from None
    own_stream = keys.get("own_stream", bool, False)
    if own_stream and source is None:
        raise keys.error("own_stream: its rows come from another query", "Leave it out, or read a source.")
    return QuerySpec(
        name=keys.need("name", str),
        source=source,
        windows=tuple(windows),
        aggregates=() if rows else keys.texts("aggregates", needed=True),
        sinks=_row_sinks(keys) if rows else parse_sinks(keys),
        parent=parent,
        parent_early=parent_early,
        late_rows_of=late,
        watermark=_watermark(keys, late, above),
        rows=rows,
        partition_by=_partition_by(keys, rows),
        group_by=keys.texts("group_by"),
        where=keys.get("where", str),
        select=keys.texts("select"),
        having=keys.get("having", str),
        results=tuple(_named(keys, text) for text in keys.texts("results")),
        rename=_renamed(keys),
        fill=keys.get("fill", str),
        for_at_most=keys.get("for_at_most", str),
        within=None if limit is None else (limit, 0.99 if quantile is None else float(quantile)),
        on_overload=on_overload,
        keep=keep,
        early=keys.get("early", str),
        lateness=keys.get("lateness", str),
        own_stream=own_stream,
    )


def _with_plain_from(keys: Keys) -> tuple[Keys, bool]:
    """Return a query's table with a mere name under `from`, and whether that says that early results are read, too."""
    value = keys.get("from", (str, dict))
    if not isinstance(value, dict):
        return keys, False
    inner = Keys(keys.file, f"{keys.where} from", value, ("query", "early"))
    name, early = inner.need("query", str), inner.get("early", bool, False)
    return Keys(keys.file, keys.where, {**keys.table, "from": name}, KEYS), early


def _reads(keys: Keys, sources: Sequence[str], above: Sequence[QuerySpec]) -> tuple[str | None, str | None, str | None]:
    """Return what a query reads: a source or join, the results of a query, or the late rows of one."""
    given = [key for key in ("source", "from", "late_rows_of") if key in keys.table]
    if len(given) > 1:
        raise keys.error(
            f"it has both {given[0]} and {given[1]}",
            "Give source to read rows, from to read results, late_rows_of to read what came too late.",
        )
    for key in ("from", "late_rows_of"):
        read = keys.get(key, str)
        known = next((query for query in above if query.name == read), None)
        if read is not None and known is None:
            raise keys.error(f"{key}: there is no query {read!r} above", "Name a query that stands before this one.")
        if known is not None and known.rows:
            raise keys.error(f"{key}: the query {read!r} writes rows and has no windows", "Read what it reads.")
    if given and given != ["source"]:
        return None, keys.get("from", str), keys.get("late_rows_of", str)
    source = keys.get("source", str, sources[0] if len(sources) == 1 else None)
    if source is None:
        raise keys.error("the key 'source' is missing", f"Name one of the sources: {', '.join(sources)}.")
    if source not in sources:
        raise keys.error(f"there is no source {source!r}", f"The sources are: {', '.join(sources)}.")
    return source, None, None


def _watermark(keys: Keys, late: str | None, above: Sequence[QuerySpec]) -> str:
    """Return the watermark of late rows; queries that read the same ones have the same."""
    given: str | None = keys.get("watermark", str)
    if given is not None and late is None:
        raise keys.error("watermark is given without late_rows_of", "That of a source stands in [source].")
    first = next((query for query in above if late is not None and query.late_rows_of == late), None)
    if first is not None and given not in (None, first.watermark):
        raise keys.error(
            f"watermark: the late rows of {late!r} have {first.watermark!r} in the query {first.name!r}",
            "Give the same one, or leave it out here.",
        )
    return given or (QuerySpec.watermark if first is None else first.watermark)


def _named(keys: Keys, text: str) -> tuple[str, str]:
    """Return name and expression of `expression as name`, or of the name of a column."""
    from transom.windows.aggregates.parse import ALIAS

    found = ALIAS.search(text)
    if found is not None:
        return found.group(1).strip("`"), text[: found.start()].strip()
    if re.fullmatch(r"`[^`]+`|\w+", text.strip()) is None:
        raise keys.error(f"results: {text!r} has no name", 'Write for example "round(total / trips, 2) as mean".')
    return text.strip().strip("`"), text.strip()


def _renamed(keys: Keys) -> tuple[tuple[str, str], ...]:
    table = keys.get("rename", dict, {})
    if not all(isinstance(old, str) for old in table.values()):
        raise keys.error(
            f"rename: {table!r} is not a table of names", 'Write rename = {session_start = "window_start"}.'
        )
    return tuple(table.items())


def _row_sinks(keys: Keys) -> tuple[SinkSpec, ...]:
    """Return where rows go, which are written as they are."""
    for key in _OF_WINDOWS:
        if key in keys.table:
            raise keys.error(
                f"{key}: rows = true writes rows as they are, without windows", f"Leave out {key}, or rows."
            )
    sinks = parse_sinks(keys)
    if len(sinks) != 1 or sinks[0].kind not in _FILES:
        raise keys.error(
            f"rows: rows are written as files of one kind, {', '.join(_FILES)}, into one directory",
            'Write for example sink = {parquet = "out/rows"}.',
        )
    return sinks


def _partition_by(keys: Keys, rows: bool) -> tuple[str, ...]:
    if "partition_by" in keys.table and not rows:
        raise keys.error("partition_by: only rows are written into directories by value", "Leave it out, or add rows.")
    if isinstance(keys.get("partition_by", (str, list)), str):
        return (keys.table["partition_by"],)
    return keys.texts("partition_by")
