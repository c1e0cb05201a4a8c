"""Dead letters: the rows of a cut that were lost to some query, each with the reason, written by a job of its own."""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from transom.engine.spark import eventtimes
from transom.engine.spark.columns import TIME, quoted, to_condition
from transom.engine.spark.jobs import observed
from transom.engine.spark.plan import Branch, StreamPlan
from transom.model.expression import Expression
from transom.model.time import Micros
from transom.sources.base import ARRIVAL, CORRUPT, ORIGIN, PARTITION
from transom.storage.durable import make_directory, names_in, remove_tree, replacing_tree, writing
from transom.storage.places import Place, spark_uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Loss: TypeAlias = "tuple[Micros | None, Expression | None]"
"""A row is lost with an event time before the moment, or, where that is None, if a transformation left it none that can
be used; and if it satisfies the condition of the query."""

LATE = "late"
OVERLOAD = "overload"
"""Pieces of the input that were not read, so that the others are in time."""
TIMELESS = (eventtimes.NO_TIME, eventtimes.OUT_OF_RANGE)
"""Reasons that a transformation can bring about, too."""


DIRECTORY = "dead-letters"
"""Directory of the checkpoint with those of each stream."""
LETTERS = pa.schema(
    [
        pa.field("reason", pa.string()),
        pa.field("event_time", pa.timestamp("us", "UTC")),
        pa.field("queries", pa.list_(pa.string())),
        pa.field("record", pa.string()),
    ]
)
"""The columns of letters, as Spark writes them."""
_NAME = re.compile(r"(?P<hidden>\.?)cut=(?P<cut>\d+).*")


@dataclass(frozen=True)
class Letters:
    """The dead letters of a stream: a directory for each cut."""

    directory: Place
    check: Callable[[], None] = lambda: None
    """Returns while no other application has taken over; asked before letters get their name, or are removed."""
    earlier: int = 0
    """Letters of cuts up to this are of earlier streams of the same name; 0 for none."""

    def of(self, cut: int) -> Place:
        """Return where those of a cut are."""
        return self.directory / f"cut={cut}"

    def last(self) -> int:
        """Return the number of the last cut that has some; 0 without any."""
        return max((int(match["cut"]) for _, match in self._found() if not match["hidden"]), default=0)

    def remove_uncommitted(self, last: int) -> None:
        """Remove those of cuts after the last one that was committed: the next cut may be another, without letters."""
        left = [name for name, match in self._found() if match["hidden"] or int(match["cut"]) > last]
        if left:
            self.check()
        for name in left:
            remove_tree(self.directory / name)

    def _found(self) -> list[tuple[str, re.Match[str]]]:
        return [(name, match) for name in names_in(self.directory) if (match := _NAME.fullmatch(name))]


def write_units(
    units: Mapping[str, str], has_origin: bool, directory: Place, check: Callable[[], None] = lambda: None
) -> None:
    """Write the letters of a cut that lost nothing but units of its source: without a job, which takes longer.

    Args:
        units: Those that were not read, with the reason.
        has_origin: Whether the source says where rows are.
        directory: As for `write_dead_letters`.
        check: As well.
    """
    schema = LETTERS.append(pa.field("origin", pa.string())) if has_origin else LETTERS
    rows = [{"reason": reason, "queries": [], "record": unit} for unit, reason in units.items()]
    table, name = pa.Table.from_pylist(rows, schema), "part-00000.parquet"
    if not isinstance(directory, Path):
        check()
        with writing(directory / name) as file:
            pq.write_table(table, file)
        return
    with replacing_tree(directory) as hidden:
        make_directory(hidden)
        with writing(hidden / name) as file:
            pq.write_table(table, file)
        check()


def write_dead_letters(
    raw: DataFrame,
    stream: StreamPlan,
    lost: Mapping[int, Mapping[Loss, Sequence[str]]],
    *,
    ahead: Micros | None,
    bad: bool,
    units: Mapping[str, str],
    directory: Place,
    check: Callable[[], None] = lambda: None,
) -> dict[str, int]:
    """Write the rows of a cut that were lost to some query, with the reason; replaces what an earlier try wrote.

    Args:
        raw: The rows of the cut.
        stream: Event time and transformations.
        lost: For each branch, what makes rows lost, with the names of the queries that they are lost to.
        ahead: Largest event time that is believed.
        bad: Whether there are rows that no query sees.
        units: Units of the source that were not read, with the reason.
        directory: Where the Parquet files go: columns reason, event_time, queries (array), record (JSON text), and
            origin (JSON text) where the source says where rows are; of rows after a `map` it is null.
        check: Returns while no other application has taken over; asked before the letters get their name.

    Returns:
        For each reason of TIMELESS how many rows a transformation left so; none where there are none.
    """
    from pyspark.sql import Observation

    timed = stream.timed(raw)
    unseen = _unseen(timed, raw.columns, ahead)
    frames = [unseen] if bad else []
    of_queries = [
        _of_queries(_seen(timed, raw.columns, ahead, stream.branches[branch]), losses, ORIGIN in raw.columns)
        for branch, losses in lost.items()
    ]
    observation: Any = None
    if of_queries:
        some = _union(of_queries)
        if any(moment is None for losses in lost.values() for moment, _ in losses):
            observation = Observation()
            some = some.observe(observation, *_counts())
        frames.append(some)
    if units:
        nowhere = [None] if ORIGIN in raw.columns else []
        left_out: list[tuple[Any, ...]] = [(reason, None, [], unit, *nowhere) for unit, reason in units.items()]
        frames.append(timed.sparkSession.createDataFrame(left_out, unseen.schema))
    _write(_union(frames).coalesce(1), directory, check)
    if observation is None:
        return {}
    found = observed(observation)
    if found is None:
        found = _union(of_queries).agg(*_counts()).toArrow().to_pylist()[0]
    return {reason: rows for reason, rows in found.items() if rows}


def _write(letters: DataFrame, directory: Place, check: Callable[[], None]) -> None:
    """Write the letters of a cut, which are in one partition, in place of those of an earlier try.

    What an application that was killed or overtaken still writes goes into a hidden directory of its own.
    """
    if isinstance(directory, Path):
        with replacing_tree(directory) as hidden:
            letters.write.parquet(spark_uri(hidden))
            check()
        return
    staged = directory.parent / f".{directory.name}.{secrets.token_hex(4)}.tmp"
    try:
        letters.write.parquet(spark_uri(staged))
        (name,) = [name for name in names_in(staged) if name.endswith(".parquet")]
        check()
        (staged / name).move_to(directory / "part-00000.parquet")
    finally:
        remove_tree(staged)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return functools.reduce(lambda a, b: a.unionByName(b), frames)


def _counts() -> list[Column]:
    from pyspark.sql import functions as F

    return [F.expr(f"count_if(reason = '{reason}')").alias(reason) for reason in TIMELESS]


def _unseen(timed: DataFrame, columns: Sequence[str], ahead: Micros | None) -> DataFrame:
    """Return the letters of the rows that no query sees."""
    from pyspark.sql import functions as F

    has_corrupt = CORRUPT in columns
    reasons = {"corrupt": f"{CORRUPT} IS NOT NULL"} if has_corrupt else {}
    reasons.update(eventtimes.unusable(ahead))
    hidden = (CORRUPT, PARTITION, ARRIVAL, ORIGIN)
    users = [F.col(quoted(name)) for name in columns if name not in hidden]
    record = F.to_json(F.struct(*users)) if users else F.lit("{}")
    if has_corrupt:
        record = F.coalesce(F.col(CORRUPT), record)
    return timed.select(
        F.expr(_case(reasons, "NULL")).alias("reason"),
        F.timestamp_micros(F.col(TIME)).alias("event_time"),
        F.expr("CAST(array() AS array<string>)").alias("queries"),
        record.alias("record"),
        *([F.to_json(ORIGIN).alias("origin")] if ORIGIN in columns else []),
    ).where("reason IS NOT NULL")


def _seen(timed: DataFrame, columns: Sequence[str], ahead: Micros | None, branch: Branch) -> DataFrame:
    """Return the rows that the queries of a branch see; with ORIGIN where no function of the user gets it to see."""
    shown = columns if branch.chain else [name for name in columns if name != ORIGIN]
    return branch.timed(eventtimes.good_rows(timed, ahead, shown))


def _of_queries(seen: DataFrame, losses: Mapping[Loss, Sequence[str]], has_origin: bool) -> DataFrame:
    """Return the letters of the rows that queries of a branch see and lose."""
    from pyspark.sql import functions as F

    lost = [F.when(_is_lost(*loss), F.array(*[F.lit(name) for name in names])) for loss, names in losses.items()]
    columns = [F.col(quoted(name)) for name in seen.columns if name not in (TIME, ORIGIN)]
    origin = F.to_json(ORIGIN) if ORIGIN in seen.columns else F.lit(None).cast("string")
    return seen.where(functools.reduce(lambda a, b: a | b, (_is_lost(*loss) for loss in losses))).select(
        F.expr(_case(eventtimes.unusable(None), f"'{LATE}'")).alias("reason"),
        F.timestamp_micros(F.col(TIME)).alias("event_time"),
        F.flatten(F.filter(F.array(*lost), lambda names: names.isNotNull())).alias("queries"),
        F.to_json(F.struct(*columns)).alias("record"),
        *([origin.alias("origin")] if has_origin else []),
    )


def _case(reasons: Mapping[str, str], otherwise: str) -> str:
    """Return the SQL of the first reason whose condition holds."""
    cases = " ".join(f"WHEN {condition} THEN '{name}'" for name, condition in reasons.items())
    return f"CASE {cases} ELSE {otherwise} END"


def _is_lost(moment: Micros | None, condition: Expression | None) -> Column:
    from pyspark.sql import functions as F

    usable = eventtimes.believed(None)
    lost = F.expr(f"NOT ({usable})" if moment is None else f"{usable} AND {TIME} < {moment}L")
    return lost if condition is None else lost & to_condition(condition)
