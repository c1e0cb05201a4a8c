"""`tm.Collection`: datasets that come and go, kept partitioned alike and together for quick questions over several."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from transom.engine.spark.namespaces import Dataset, Namespace, leave, namespace, tables_of
from transom.engine.spark.placed import arrow_schema
from transom.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = Callable[[list[pa.Table]], pa.Table]

MERGED = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
"""Aggregates of Arrow whose partial results merge, and how."""


class Collection:
    """Datasets of one kind, by label: the trips of each hour, the log of each day.

    Each dataset is partitioned by the hash of its keys once, when it is added. Corresponding partitions of all of them
    are at the same executor as Arrow files, so that what is asked of several is answered there, without an exchange.
    Files that were read lately are in memory, the others on disk: the kernel's page cache decides.

    >>> trips = tm.Collection(spark, "trips", keys=["cell"], partitions=64)  # doctest: +SKIP
    >>> for hour in range(24):  # doctest: +SKIP
    ...     trips.add(hour, spark.read.parquet(f"trips/{hour}"))
    >>> trips.between(8, 12).aggregate(["cell"], {"fare": ["count", "mean"]}).to_pandas()  # doctest: +SKIP

    Args:
        spark: A classic session, made with `session_builder()`.
        name: For people, and the namespace if none is given.
        keys: Columns that decide a row's partition; of the same types in all datasets.
        partitions: Some times the number of cores: groups of neighbouring partitions become tasks.
        namespace: Collections of one namespace are partitioned alike and sit together: they are joined without an
            exchange.
        elastic: Bytes of the smallest and the largest group; groups are split and merged by the sizes of the last
            datasets, and a key that is larger is salted. None: as many groups as there are cores.
        bounds: For ordered keys: the first key of each partition but the first, ascending, so that neighbouring keys
            are in neighbouring partitions. None: partitions by the hash of the keys.
        limit_bytes: With more bytes than this, datasets are evicted; None for no limit.
        evict: Which first: `oldest` added or `least_used`, the one whose last use is longest ago.

    Raises:
        DefinitionError: A value cannot be, or the namespace is partitioned in another way.
        SessionError: The session is a Spark Connect session, or has no executor.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        keys: Sequence[str],
        partitions: int = 64,
        *,
        namespace: str | None = None,
        elastic: tuple[int, int] | None = None,
        bounds: Sequence[Any] | None = None,
        limit_bytes: int | None = None,
        evict: Literal["oldest", "least_used"] = "oldest",
    ) -> None:
        if evict not in ("oldest", "least_used"):
            raise DefinitionError(f"evict is {evict!r}.", "Give 'oldest' or 'least_used'.")
        if limit_bytes is not None and limit_bytes < 1:
            raise DefinitionError(f"limit_bytes is {limit_bytes}.", "Give at least 1, or None.")
        if isinstance(keys, str):
            raise DefinitionError(f"keys is the text {keys!r}.", f"Give a list: [{keys!r}].")
        self.name, self.keys, self.limit_bytes, self.order = name, tuple(keys), limit_bytes, evict
        self._namespace = _namespace(spark, namespace or name, keys, partitions, elastic, bounds)
        self._datasets: dict[Any, Dataset] = {}
        self._schema: pa.Schema | None = None
        self._actions = itertools.count(1)
        self._closed = False

    # ---- datasets come and go

    def add(self, label: Any, frame: DataFrame) -> None:
        """Compute a dataset and keep it: one job with one exchange.

        Args:
            label: What it is called; labels of a collection can be compared, as numbers, dates or texts.
            frame: Its rows. It is computed again if its executor is lost or the dataset was evicted, so that it must
                give the same rows every time.

        Raises:
            DefinitionError: The label is taken, or keys or columns are not those of the collection.
        """
        if self._closed:
            raise DefinitionError(f"{self.name}: the collection is closed.", "Make a new one.")
        if label in self._datasets:
            raise DefinitionError(f"{self.name}: there is a dataset {label!r}.", "Drop it first, or use another label.")
        for known in itertools.islice(self._datasets, 1):
            _comparable(known, label)
        keyed = frame
        if self.keys != self._namespace.keys:  # its keys have other names here
            for theirs, mine in zip(self._namespace.keys, self.keys, strict=True):
                if mine not in frame.columns:
                    raise DefinitionError(f"The dataset has no column {mine}.", f"Columns: {', '.join(frame.columns)}.")
                keyed = keyed.withColumnRenamed(mine, theirs)
        schema = arrow_schema(keyed)
        if self._schema is not None and not schema.equals(self._schema):
            raise DefinitionError(
                f"{self.name}: the columns of {label!r} are {_short(schema)}; before they were {_short(self._schema)}.",
                "Select and cast the same columns in the same order.",
            )
        self._namespace.check_keys(keyed)
        dataset = Dataset(label, keyed)
        self._namespace.materialise(dataset)
        self._schema = schema
        dataset.used = next(self._actions)
        self._datasets[label] = dataset
        self._make_room(keep={label})

    def evict(self, *labels: Any) -> None:
        """Free the files of some datasets; they are computed again when they are asked for.

        Raises:
            DefinitionError: There is no dataset of that label.
        """
        for dataset in self._named(labels):
            self._namespace.free(dataset)

    def drop(self, *labels: Any) -> None:
        """Forget some datasets.

        Raises:
            DefinitionError: There is no dataset of that label.
        """
        for dataset in self._named(labels):
            del self._datasets[dataset.label]
            self._namespace.free(dataset)

    def close(self) -> None:
        """Forget all datasets, and leave the namespace; nothing can be added any more."""
        self.drop(*self._datasets)
        if not self._closed:
            self._closed = True
            leave(self._namespace)

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _named(self, labels: Sequence[Any]) -> list[Dataset]:
        unknown = [label for label in labels if label not in self._datasets]
        if unknown:
            raise DefinitionError(
                f"{self.name}: there is no dataset {', '.join(map(repr, unknown))}.",
                f"There are {', '.join(map(repr, self._datasets)) or 'none'}.",
            )
        return [self._datasets[label] for label in labels]

    def _make_room(self, keep: set[Any]) -> None:
        """Evict datasets until the rest fits, but not those that are in use."""
        if self.limit_bytes is None:
            return
        held = [each for each in self._datasets.values() if each.files]
        if self.order == "least_used":
            held.sort(key=lambda each: each.used)
        total = sum(each.bytes for each in held)
        for dataset in held:
            if total <= self.limit_bytes:
                return
            if dataset.label not in keep:
                total -= dataset.bytes
                self._namespace.free(dataset)

    # ---- what there is

    @property
    def labels(self) -> list[Any]:
        """Labels in the order in which they were added."""
        return list(self._datasets)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(each.bytes for each in self._datasets.values())

    def __len__(self) -> int:
        return len(self._datasets)

    def __contains__(self, label: Any) -> bool:
        return label in self._datasets

    def __iter__(self) -> Iterator[Any]:
        return iter(self._datasets)

    def __repr__(self) -> str:
        evicted = sum(not each.files for each in self._datasets.values())
        return (
            f"Collection({self.name!r}, {len(self)} datasets, {evicted} of them evicted, {self.bytes / 1e6:.1f} MB, "
            f"{self._namespace.partitions} partitions in {len(self._namespace.grouping)} groups "
            f"on {len(set(self._namespace.homes))} executors)"
        )

    @property
    def groups(self) -> Namespace:
        """Partitions, groups and homes, shared with all collections of the namespace."""
        return self._namespace

    # ---- questions

    def between(self, start: Any, end: Any) -> View:
        """Return the datasets whose label is in [start, end), in the order of their labels."""
        return self._view(sorted(label for label in self._datasets if start <= label < end))

    def all(self) -> View:
        """Return all datasets."""
        return self._view(list(self._datasets))

    def __getitem__(self, label: Any) -> View:
        return self._view([label])

    def _view(self, labels: Sequence[Any]) -> View:
        datasets = self._named(labels)
        if not datasets or self._schema is None:
            raise DefinitionError(
                f"{self.name}: no dataset is asked for.",
                f"Labels are {', '.join(map(repr, self._datasets)) or 'none'}.",
            )
        for dataset in datasets:
            dataset.used = next(self._actions)
        self._make_room(keep=set(labels))
        return View(self._namespace, datasets, pa.concat_tables, self._schema)


class View:
    """Rows of some datasets, not computed yet. Every method with a result runs one job without an exchange.

    Functions that are given get Arrow tables: zero-copy views of one group of partitions. All rows with equal keys are
    in one group, of all datasets of the namespace; those of a salted key, too large for one task, are in several.
    """

    def __init__(self, namespace: Namespace, datasets: Sequence[Dataset], rows: Rows, schema: pa.Schema) -> None:
        self._namespace, self._datasets, self._rows, self.schema = namespace, list(datasets), rows, schema

    @property
    def salted(self) -> dict[tuple[Any, ...], int]:
        """Keys whose rows are spread, over how many partitions: what is made of them by group has to be merged."""
        return {key: n for each in self._datasets if each.partitioning for key, n in each.partitioning.salts.items()}

    def where(self, condition: pc.Expression) -> View:
        """Keep the rows for which an Arrow expression holds, as `pc.field("fare") > 3`."""
        rows = self._rows
        return View(self._namespace, self._datasets, lambda tables: rows(tables).filter(condition), self.schema)

    def select(self, *columns: str) -> View:
        """Keep some columns.

        Raises:
            DefinitionError: There is no such column.
        """
        _known(columns, self.schema)
        rows, schema = self._rows, pa.schema([self.schema.field(name) for name in columns])
        return View(self._namespace, self._datasets, lambda tables: rows(tables).select(list(columns)), schema)

    def join(self, other: View, how: str = "inner", suffix: str = "_right") -> View:
        """Join by the keys with a view of the same namespace, as `pyarrow.Table.join` does.

        Args:
            other: The right side.
            how: A join type of Arrow: `inner`, `left outer`, `left semi`, `left anti`, `right outer`, `full outer`.
            suffix: Of columns on the right whose names are on the left as well.

        Raises:
            DefinitionError: The other view is of another namespace, or a key is salted.
        """
        for salted in {**self.salted, **other.salted}:
            raise DefinitionError(
                f"The key {salted} is salted: its rows lie in several groups, where a join would miss pairs.",
                "Join the DataFrames (`df()`), or use a larger second bound of `elastic`.",
            )
        if other._namespace is not self._namespace:
            raise DefinitionError(
                f"A view of the namespace {self._namespace.name!r} cannot be joined with one of "
                f"{other._namespace.name!r}: they are partitioned apart.",
                "Make both collections with the same namespace, or join their DataFrames.",
            )
        count, keys = len(self._datasets), list(self._namespace.keys)
        left, right = self._rows, other._rows

        def rows(tables: list[pa.Table]) -> pa.Table:
            sides = left(tables[:count]), right(tables[count:])
            return sides[0].join(sides[1], keys, join_type=how, right_suffix=suffix, use_threads=False)

        empty = [self.schema.empty_table(), other.schema.empty_table()]
        schema = empty[0].join(empty[1], keys, join_type=how, right_suffix=suffix).schema
        return View(self._namespace, [*self._datasets, *other._datasets], rows, schema)

    def run(self, function: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """Return what a function gives for the rows of each group, one after the other."""
        rows = self._rows
        return self.cogroup(lambda tables: function(rows(tables)))

    def cogroup(self, function: Callable[[list[pa.Table]], pa.Table]) -> pa.Table:
        """Return what a function gives for the tables of each group, one for each dataset in order."""
        answers = self._namespace.run(self._datasets, lambda tables: _to_bytes(function(tables)))
        return pa.concat_tables([pa.ipc.open_stream(answer).read_all() for answer in answers])

    def table(self) -> pa.Table:
        """Return all rows; they must fit into the driver's memory."""
        return self.run(lambda rows: rows)

    def count(self) -> int:
        """Return the number of rows."""
        rows = self._rows
        return sum(int(each) for each in self._namespace.run(self._datasets, lambda t: str(len(rows(t))).encode()))

    def aggregate(self, by: Sequence[str], aggregates: Mapping[str, str | Sequence[str]]) -> pa.Table:
        """Return aggregates by columns, as `pyarrow.TableGroupBy.aggregate` names them: `fare_mean`.

        By all keys of the collection (and maybe more) any aggregate of Arrow is possible, as each group of rows lies in
        one place. By other columns, or none, or when a key is salted, the partial results of the places are merged:
        sum, count, min, max, mean.

        Args:
            by: Columns; may be empty.
            aggregates: Arrow's names of aggregates by column, as `{"fare": ["count", "mean"]}`.

        Raises:
            DefinitionError: A column is unknown, or the aggregate of a column cannot be merged.
        """
        wanted = [(c, a) for c, names in aggregates.items() for a in ([names] if isinstance(names, str) else names)]
        columns = list(by)
        _known([*columns, *aggregates], self.schema)
        salted = bool(self.salted)
        if set(self._namespace.keys) <= set(columns) and not salted:
            return self.run(lambda rows: rows.group_by(columns, use_threads=False).aggregate(wanted))
        partial: list[tuple[str, str]] = []
        for column, name in wanted:
            if name != "mean" and name not in MERGED:
                raise DefinitionError(
                    f"{name} of {column} by {columns} cannot be merged{', and keys are salted' * salted}.",
                    f"Group by the keys {', '.join(self._namespace.keys)} too, or use {', '.join(MERGED)}, mean.",
                )
            partial += [(column, each) for each in (("sum", "count") if name == "mean" else (name,))]
        partial = list(dict.fromkeys(partial))
        found = self.run(lambda rows: rows.group_by(columns, use_threads=False).aggregate(partial))
        merged = found.group_by(columns, use_threads=False).aggregate(
            [(f"{column}_{name}", MERGED[name]) for column, name in partial]
        )
        parts = {f"{column}_{name}": merged[f"{column}_{name}_{MERGED[name]}"] for column, name in partial}
        result = {name: merged[name] for name in columns}
        for column, name in wanted:
            if name == "mean":
                sums = parts[f"{column}_sum"].cast(pa.float64())
                counts = pc.if_else(pc.equal(parts[f"{column}_count"], 0), None, parts[f"{column}_count"])
                result[f"{column}_mean"] = pc.divide(sums, counts)
            else:
                result[f"{column}_{name}"] = parts[f"{column}_{name}"]
        return pa.table(result)

    def df(self) -> DataFrame:
        """Return the rows as a DataFrame, for everything else; it is read where the partitions are.

        Datasets that are evicted, dropped or moved after this call are no longer found by it.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        tasks, paths = self._namespace.plan(self._datasets)
        rows = self._rows
        return tasks.frame(lambda group: rows(tables_of(paths[group])).to_batches(), from_arrow_schema(self.schema))


def _namespace(*arguments: Any) -> Namespace:
    return namespace(*arguments)


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _known(columns: Sequence[str], schema: pa.Schema) -> None:
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise DefinitionError(f"There is no column {', '.join(unknown)}.", f"Columns are {', '.join(schema.names)}.")


def _comparable(known: Any, label: Any) -> None:
    try:
        known < label  # noqa: B015
    except TypeError:
        raise DefinitionError(
            f"The label {label!r} cannot be compared with {known!r}.", "Use labels of one type."
        ) from None


def _short(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
