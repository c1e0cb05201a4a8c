"""Checks of queries when they are compiled: what would depend on how the stream is cut is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from transom.engine.partials.tables import LENGTH, PANE, TAG
from transom.engine.spark import rowwise
from transom.engine.spark.columns import TIME, Unrepeatable, first_line, to_condition
from transom.engine.spark.plan import Transformation
from transom.engine.spark.plantext import plan_text
from transom.errors import DefinitionError
from transom.model.expression import Expression
from transom.model.window import SessionSpec
from transom.windows.query import Key, WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def checked_event_time(good: DataFrame, event_time: Expression) -> str:
    """Return the analysed plan of a stream's rows.

    Raises:
        DefinitionError: The event time is not made of each row by itself.
    """
    text, where = plan_text(good), f"event_time: {event_time.text!r}"
    root = rowwise.parse(text)
    if [operator.name for operator in root.walk()] != ["Project", root.children[0].name]:
        raise DefinitionError(f"{where} is not made of one row.", "Give an expression over the columns of a row.")
    why = rowwise.why_not_repeatable(good, text)
    if why is not None:
        raise DefinitionError(f"{where}: {why}.", "Give a time that is in the rows.")
    return text


def check_row_wise(seen: DataFrame, text: str, stream: str, chain: Sequence[Transformation]) -> None:
    """Refuse transformations whose results would depend on micro-batches.

    Raises:
        DefinitionError: They do not take each row by itself, or may make other rows of the same.
    """
    fault = rowwise.why_not_row_wise(text, stream)
    if fault is not None:
        raise DefinitionError(f"map: {fault[0]}, and results would depend on how the stream is cut.", fault[1])
    why = None if _unrepeatable(chain) else rowwise.why_not_repeatable(seen, text)
    if why is not None:
        raise DefinitionError(
            f"map: {why}, so that the same rows, read again after a failure, could give other results.",
            "Take what is in the rows, or say map(..., deterministic=False) if that is meant.",
        )


def check_expressions(needed: DataFrame, rows: str, chain: Sequence[Transformation]) -> None:
    """Refuse keys, conditions and inputs of aggregates that are not made of each row by itself.

    Raises:
        DefinitionError: One of them is not.
    """
    text, where = plan_text(needed), "where, group_by, agg or ends_when"
    fault = rowwise.more_than_columns(text, rows)
    if fault is not None:
        raise DefinitionError(f"{where}: {fault[0]}.", fault[1])
    why = None if _unrepeatable(chain) else rowwise.why_not_repeatable(needed, text)
    if why is not None:
        raise DefinitionError(f"{where}: {why}.", "Make it a column in map(..., deterministic=False) if that is meant.")


def check_ends(queries: Sequence[WindowedQuery], seen: Mapping[int, DataFrame], texts: Mapping[int, str]) -> None:
    """Refuse conditions that end sessions and are none.

    Args:
        queries: The queries.
        seen: The rows of each branch.
        texts: Their analysed plans.

    Raises:
        DefinitionError: One of them is no boolean expression over the columns of a row.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import BooleanType

    for query in queries:
        for window in query.windows:
            if not isinstance(window, SessionSpec) or window.ends_when is None:
                continue
            rows, where = seen[query.branch], f"query {query.name!r}: ends_when = {window.ends_when.text!r}"
            try:
                selected = rows.select(to_condition(window.ends_when))
                fault = rowwise.more_than_columns(plan_text(selected), texts[query.branch])
                kind = selected.schema[0].dataType
            except PySparkException as error:
                names = ", ".join(name for name in rows.columns if name != TIME)
                raise DefinitionError(
                    f"{where}: {first_line(error)}.", f"Give a condition over the columns of a row: {names}."
                ) from error
            if fault is not None:
                raise DefinitionError(f"{where}: {fault[0]}.", fault[1])
            if not isinstance(kind, BooleanType):
                raise DefinitionError(
                    f"{where} is no condition: its type is {kind.simpleString()}.",
                    "Give what is true of the last row of a session, for example \"event = 'logout'\".",
                )


def _unrepeatable(chain: Sequence[Transformation]) -> bool:
    return any(isinstance(function, Unrepeatable) for function in chain)


def check_keys(types: Mapping[tuple[int, Key], pa.DataType]) -> None:
    """Refuse keys whose values cannot be compared, or whose names the engine uses.

    Raises:
        DefinitionError: There is one.
    """
    for (_, key), kind in types.items():
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise DefinitionError(
                f"group_by: the key {key.name!r} has type {kind}.",
                "Group by its parts, or by to_json() of it.",
            )
        if key.name in (PANE, TAG, LENGTH, "window_start", "window_end") or key.name.startswith("_s"):
            if key.name.startswith("_s") and not key.name[2:3].isdigit():
                continue
            raise DefinitionError(
                f"group_by: the key name {key.name!r} is taken by Transom.",
                "Give it another name: group_by(x=...).",
            )
