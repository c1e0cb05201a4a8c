"""States of groups that Arrow's aggregation has not: chosen rows, sorted values, bits, moments, lists.

Each is made of all rows at once, which are numbered by their group. Where Spark may order or round values otherwise
(NaN, -0.0), it has to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transom.native.values import UncertainError

Ints: TypeAlias = "npt.NDArray[np.int64]"
Floats: TypeAlias = "npt.NDArray[np.float64]"


@dataclass(frozen=True)
class Groups:
    """Which group each row belongs to."""

    of: Ints
    """The number of each row's group."""
    count: int

    @classmethod
    def by(cls, columns: Sequence[pa.Array]) -> Groups:
        """Return groups of rows with equal values, null being one, numbered as they come first; O(rows)."""
        found, count = np.zeros(len(columns[0]), np.int64), 1
        for column in columns:
            places = column.dictionary_encode("encode")
            mixed = found * max(len(places.dictionary), 1) + places.indices.to_numpy()
            numbered = pa.array(mixed).dictionary_encode()
            found, count = numbered.indices.to_numpy().astype(np.int64), len(numbered.dictionary)
        return cls(found, count)

    def first_rows(self) -> pa.Array:
        """Return the first row of each group."""
        rows = np.zeros(self.count, np.int64)
        rows[self.of[::-1]] = np.arange(len(self.of))[::-1]
        return pa.array(rows)


class State(Protocol):
    """What is made of the rows of each group."""

    def columns(self, rows: pa.RecordBatch, groups: Groups) -> Mapping[str, pa.Array]:
        """Return the columns of the states, by their own names: an element for each group.

        Raises:
            UncertainError: Spark may make something else of them.
        """
        ...


@dataclass(frozen=True)
class Chosen:
    """The value in the row with the least or largest rank; of those the least or largest, where null is the least."""

    rank_as: str
    """The state's name of the rank."""
    rank: str
    value: str
    largest: bool
    known: str = ""
    """The column that must not be null in a row that counts; all do without one."""
    where: str = ""

    def columns(self, rows: pa.RecordBatch, groups: Groups) -> dict[str, pa.Array]:
        """Return the ranks and the values, null where no row counts."""
        best = "max" if self.largest else "min"
        found = _table(rows, groups, {"r": self.rank, "v": self.value}, self.known, self.where)
        check_order(found["r"])
        ranks = found.group_by("group", use_threads=False).aggregate([("r", best)])
        place = _places(ranks["group"], groups.count)
        mine = found.filter(pc.equal(found["r"], ranks[f"r_{best}"].take(place.take(found["group"]))))
        if mine.num_rows > ranks.num_rows:
            mine = _best(mine, best)
        return {
            self.rank_as: ranks[f"r_{best}"].take(place).combine_chunks(),
            "value": mine["v"].take(_places(mine["group"], groups.count)).combine_chunks(),
        }


def _best(rows: pa.Table, best: str) -> pa.Table:
    """Return the least or largest value of each group, where null is the least."""
    if not is_ordered(rows["v"].type):
        raise UncertainError("which of several rows of one rank is the first")
    check_order(rows["v"])
    nulls = pc.CountOptions("only_null")
    found = rows.group_by("group", use_threads=False).aggregate([("v", best), ("v", "count", nulls)])
    values = found[f"v_{best}"]
    if best == "min":
        values = pc.case_when(pc.make_struct(pc.equal(found["v_count"], 0)), values)
    return pa.table({"group": found["group"], "v": values})


@dataclass(frozen=True)
class Sorted:
    """The first values that are not null, in the order of another column if there is one, as a list."""

    name: str
    of: str
    kind: pa.DataType
    """Of the lists: their elements are values, or structs of the order and the value."""
    limit: int
    unique: bool = False
    by: str = ""
    descending: bool = False
    where: str = ""

    def columns(self, rows: pa.RecordBatch, groups: Groups) -> dict[str, pa.Array]:
        """Return the lists, empty where no row counts."""
        taken = {"o": self.by, "x": self.of} if self.by else {"x": self.of}
        found = _table(rows, groups, taken, self.of, self.where)
        for name in taken:
            check_order(found[name])
        found = found.append_column("known", found[next(iter(taken))].is_valid())  # null is the least
        order = "descending" if self.descending else "ascending"
        keys: Any = [("group", "ascending"), *((name, order) for name in ("known", *taken))]
        found = found.take(pc.sort_indices(found, sort_keys=keys))
        if self.unique and len(found) > 1:
            group, x = found["group"].to_numpy(), found["x"].combine_chunks()
            again = pc.equal(x[1:], x[:-1]).to_numpy(zero_copy_only=False) & (group[1:] == group[:-1])
            found = found.filter(pa.array(np.append(True, ~again)))
        group = found["group"].to_numpy()
        lengths = np.bincount(group, minlength=groups.count)
        place = np.arange(len(group)) - (np.cumsum(lengths) - lengths)[group]
        found = found.filter(pa.array(place < self.limit))
        ends = np.append(0, np.cumsum(np.minimum(lengths, self.limit))).astype(np.int32)
        of = self.kind.value_type
        fields = list(of) if self.by else [pa.field("x", of)]
        parts = [found[name].combine_chunks().cast(field.type) for name, field in zip(taken, fields, strict=True)]
        values = pa.StructArray.from_arrays(parts, fields=fields) if self.by else parts[0]
        return {self.name: pa.ListArray.from_arrays(pa.array(ends), values, type=self.kind)}


@dataclass(frozen=True)
class Listed:
    """What a function makes of the rows of each group, which it gets as lists of structs, in their order."""

    name: str
    fields: tuple[tuple[str, str], ...]
    """Of the structs: their names, and the columns."""
    made: Callable[[pa.ListArray], pa.Array]
    """Returns an element for each list, also for empty ones."""
    known: str = ""
    where: str = ""
    weighed: bool = False
    """Whether only rows count of which the last field is more than zero; it must not be less."""

    def columns(self, rows: pa.RecordBatch, groups: Groups) -> dict[str, pa.Array]:
        """Return what the function makes."""
        columns = {f"{place}": column for place, (_, column) in enumerate(self.fields)}
        found = _table(rows, groups, columns, self.known, self.where)
        if self.weighed:
            weight = found.column(found.num_columns - 1)
            if pc.any(pc.less(weight, 0), min_count=0).as_py():
                raise UncertainError("a weight that is less than zero")
            found = found.filter(pc.greater(weight, 0))
        group = found["group"].to_numpy()
        found = found.take(pa.array(np.argsort(group, kind="stable")))
        ends = np.append(0, np.cumsum(np.bincount(group, minlength=groups.count))).astype(np.int32)
        values = [found[name].combine_chunks() for name in columns]
        structs = pa.StructArray.from_arrays(values, [name for name, _ in self.fields])
        return {self.name: self.made(pa.ListArray.from_arrays(pa.array(ends), structs))}


@dataclass(frozen=True)
class Bits:
    """The bits of whole numbers that are not null, joined."""

    function: Literal["bit_and", "bit_or", "bit_xor"]
    of: str
    where: str = ""

    def columns(self, rows: pa.RecordBatch, groups: Groups) -> dict[str, pa.Array]:
        """Return the joined bits, null where no row counts."""
        found = _table(rows, groups, {"x": self.of}, self.of, self.where).sort_by("group")
        joined = {"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}[self.function]
        group, x = found["group"].to_numpy(), found["x"].to_numpy()
        present, starts = np.unique(group, return_index=True)
        values = pa.array(joined.reduceat(x, starts) if len(x) else x)
        return {"value": values.take(_places(pa.array(present), groups.count))}


@dataclass(frozen=True)
class Moments:
    """The number, mean and sums of powers of the differences from the mean, of numbers that are not null."""

    of: str
    powers: tuple[int, ...]
    """Of the sums m2, m3, m4."""
    where: str = ""

    def columns(self, rows: pa.RecordBatch, groups: Groups) -> dict[str, pa.Array]:
        """Return the moments; null where no row counts, but for the number."""
        found = _table(rows, groups, {"x": self.of}, self.of, self.where)
        group = found["group"].to_numpy()
        n, mean, apart = _apart(found["x"], group, groups.count)
        with np.errstate(all="ignore"):
            sums = {f"m{power}": _summed(apart**power, group, groups.count) for power in self.powers}
        return _moments(n, {"mean": mean, **sums})


@dataclass(frozen=True)
class PairMoments:
    """The number of pairs without null, both means, and sums of products of the differences from them."""

    x: str
    y: str
    where: str = ""

    def columns(self, rows: pa.RecordBatch, groups: Groups) -> dict[str, pa.Array]:
        """Return the moments; null where no pair counts, but for the number."""
        found = _table(rows, groups, {"x": self.x, "y": self.y}, self.x, self.where)
        found = found.filter(pc.is_valid(found["y"]))
        group = found["group"].to_numpy()
        n, mx, dx = _apart(found["x"], group, groups.count)
        _, my, dy = _apart(found["y"], group, groups.count)
        products = {"sx": dx * dx, "sy": dy * dy, "sxy": dx * dy}
        sums = {name: _summed(product, group, groups.count) for name, product in products.items()}
        return _moments(n, {"mx": mx, "my": my, **sums})


def _apart(column: pa.ChunkedArray, group: Ints, count: int) -> tuple[Ints, Floats, Floats]:
    """Return the number of values of each group, their mean, and the difference of each value from it.

    What is added up is how far values are from the least one: of large numbers that are near each other the sum itself
    would round away the differences, as the mean of equal values might be next to them.
    """
    x = column.cast(pa.float64(), safe=False).to_numpy()
    n = np.bincount(group, minlength=count)
    if not np.isfinite(x).all():
        raise UncertainError("moments of NaN or of what is infinite")
    least = np.full(count, np.inf)
    np.minimum.at(least, group, x)
    with np.errstate(all="ignore"):
        above = x - least[group]
        mean_above = _summed(above, group, count) / np.maximum(n, 1)
        apart = above - mean_above[group]
        spread = _summed(apart * apart, group, count)
    if not np.isfinite(spread).all():
        raise UncertainError("moments of numbers that are too large")
    return n, least + mean_above, apart


def _summed(values: Floats, group: Ints, count: int) -> Floats:
    return np.bincount(group, values, count).astype(np.float64)


def _moments(n: Ints, sums: Mapping[str, Floats]) -> dict[str, pa.Array]:
    """Return columns of moments; null where there is no row."""
    if not all(np.isfinite(column[n > 0]).all() for column in sums.values()):
        raise UncertainError("moments of numbers that are too large")
    return {"n": pa.array(n, pa.int64()), **{name: pa.array(column, mask=n == 0) for name, column in sums.items()}}


def _table(rows: pa.RecordBatch, groups: Groups, columns: Mapping[str, str], known: str, where: str) -> pa.Table:
    """Return columns of the rows that count under other names, with the group of each."""
    found = pa.table({"group": groups.of, **{name: rows.column(column) for name, column in columns.items()}})
    counts = rows.column(where) if where else None
    if known:
        valid = rows.column(known).is_valid()
        counts = valid if counts is None else pc.and_(counts, valid)
    return found if counts is None else found.filter(counts)


def _places(groups: pa.Array | pa.ChunkedArray, count: int) -> pa.Array:
    """Return where each of all groups is among some; null for one that is not."""
    places = np.full(count, -1)
    places[groups.to_numpy()] = np.arange(len(groups))
    return pa.array(places, mask=places < 0)


def is_ordered(kind: pa.DataType) -> bool:
    """Tell whether Arrow orders values of a type as Spark does, but for NaN and -0.0."""
    of = pa.types
    known = (of.is_string, of.is_integer, of.is_boolean, of.is_date32, of.is_floating, of.is_decimal)
    return any(each(kind) for each in known) or bool(of.is_timestamp(kind) and kind.tz is not None)


def check_order(values: pa.Array | pa.ChunkedArray) -> None:
    """See that Arrow and Spark agree which value is the least and the largest: of NaN and of -0.0 they do not.

    Raises:
        UncertainError: There is one.
    """
    if not is_plain(values):
        raise UncertainError("the order of NaN or -0.0")


def is_plain(values: pa.Array | pa.ChunkedArray) -> bool:
    """Tell whether there is neither NaN nor -0.0."""
    if not pa.types.is_floating(values.type):
        return True
    known = values.drop_null().to_numpy()
    return not (np.isnan(known).any() or (np.signbit(known) & (known == 0)).any())
