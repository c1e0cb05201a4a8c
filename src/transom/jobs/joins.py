"""Joins in TOML jobs: `[[join]]` tables, whose names queries give as their source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transom.jobs.keys import Keys, Table
from transom.jobs.windows import check_windows, make_window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from transom.api.app import App

_JOIN = ("name", "left", "right", "on", "window", "how")
_INPUT = ("source", "where", "select")


@dataclass(frozen=True)
class InputSpec:
    """One side of a join."""

    source: str
    where: str | None = None
    select: tuple[str, ...] = ()


@dataclass(frozen=True)
class JoinSpec:
    """One `[[join]]` table."""

    name: str
    left: InputSpec
    right: InputSpec
    on: tuple[str, ...]
    window: Any
    """A duration as text, or a table as in the file."""
    how: str = "inner"


def parse_join(file: str, table: Table, above: Sequence[str]) -> JoinSpec:
    """Return the join that a table describes.

    Args:
        file: Name of the file, for errors.
        table: The table.
        above: Names of the sources, and of the joins that stand before this one.

    Raises:
        JobFileError: A key is unknown, missing or of the wrong type, or a source is unknown.
    """
    name = table.get("name")
    keys = Keys(file, f"[[join]] {name!r}" if name else "[[join]]", table, _JOIN)
    label = keys.need("name", str)
    if label in above:
        raise keys.error("there is a source or join of that name already", "Give it a name of its own.")
    window = keys.need("window", (str, dict))
    check_windows(keys, [window], "window")
    left, right = (_input(keys, side, above) for side in ("left", "right"))
    return JoinSpec(label, left, right, keys.texts("on", needed=True), window, keys.get("how", str, "inner"))


def _input(keys: Keys, side: str, above: Sequence[str]) -> InputSpec:
    value = keys.need(side, (str, dict))
    inner = Keys(keys.file, f"{keys.where} {side}", {"source": value} if isinstance(value, str) else value, _INPUT)
    source = inner.need("source", str)
    if source not in above:
        raise inner.error(f"there is no source {source!r}", f"The sources are: {', '.join(above)}.")
    return InputSpec(source, inner.get("where", str), inner.texts("select"))


def add_join(app: App, join: JoinSpec, streams: Mapping[str, Any]) -> Any:
    """Return the stream of a join.

    Args:
        app: The application.
        join: The join.
        streams: The stream of each source.

    Raises:
        DefinitionError: It cannot work.
    """
    left, right = (selected(streams[side.source], side.where, side.select) for side in (join.left, join.right))
    return app.join(left, right, on=join.on, window=make_window(join.window), how=join.how, name=join.name)


def selected(rows: Any, where: str | None, select: tuple[str, ...]) -> Any:
    """Return the rows that satisfy a condition, with some columns."""
    rows = rows if where is None else rows.where(where)
    return rows.map(_selection(select)) if select else rows


def _selection(columns: tuple[str, ...]) -> Any:
    def select(frame: DataFrame) -> DataFrame:
        return frame.selectExpr(*columns)

    return select
