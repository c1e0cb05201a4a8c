"""`tm.Collection`: datasets that come and go, kept partitioned alike and together for quick questions over several."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from transom.collections.checkpointing import Recovery
from transom.collections.datasets import Dataset, Function, Recipe
from transom.collections.deriving import alike, described
from transom.collections.keyvalues import plain_frame
from transom.collections.registry import joined, leave
from transom.collections.view import Terms, View, composed
from transom.engine.placed.placed import arrow_schema
from transom.engine.spark.isolation import explained
from transom.errors import DefinitionError
from transom.failures import classify
from transom.model.arguments import column_names, shown, text, wait, whole_number
from transom.model.signatures import checked
from transom.model.time import MICROS_PER_SECOND, Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Collection:
    """Datasets of one kind, by label: the trips of each hour, the log of each day.

    Provisional: may change in a minor version.

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
        elastic: Bytes of the smallest and the largest group over the last three datasets (less while there are fewer);
            groups are split and merged by their sizes, and a key that is larger is salted. None: as many groups as
            there are cores.
        bounds: For ordered keys: the first key of each partition but the first, ascending, so that neighbouring keys
            are in neighbouring partitions. None: partitions by the hash of the keys.
        limit_bytes: With more bytes than this, datasets are evicted; None for no limit.
        eviction: Which first: `oldest` added or `least_used`, the one whose last use is longest ago.
        locality_wait: How long a task of a question waits for an executor that has its data while others are idle;
            less where a question's `within` does not allow it. What then cannot be read elsewhere is copied, while it
            is wanted.
        recovery: How soon derived datasets are there again after a loss, and where they are checkpointed for it; for
            all collections of the namespace. None: derived datasets are made again from the beginning.
        patience: How long a call waits for executors while the cluster has given none, or those that it needs were
            lost; for all collections of the namespace. None: 60 s.

    Raises:
        DefinitionError: A value cannot be, or the namespace is partitioned in another way.
        SessionError: The session is a Spark Connect session, or has no executor for as long as `patience`.
    """

    @checked
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
        eviction: Literal["oldest", "least_used"] = "oldest",
        locality_wait: Duration = "100 ms",
        recovery: Recovery | None = None,
        patience: Duration | None = None,
    ) -> None:
        if eviction not in ("oldest", "least_used"):
            raise DefinitionError(f"eviction is {eviction!r}.", "Give 'oldest' or 'least_used'.")
        if limit_bytes is not None:
            whole_number(limit_bytes, "limit_bytes")
        if recovery is not None and not isinstance(recovery, Recovery):
            raise DefinitionError(f"recovery is {shown(recovery)}.", "Give tm.Recovery(bound=..., path=...).")
        self.name, self.keys = text(name, "name"), column_names(keys, "keys")
        self.limit_bytes, self.order = limit_bytes, eviction
        self._terms = Terms(wait(locality_wait, "locality_wait") / MICROS_PER_SECOND)
        shared = text(self.name if namespace is None else namespace, "namespace")
        patient = None if patience is None else wait(patience, "patience")
        with explained(f"{self.name}: the collection"):
            self._namespace = joined(spark, shared, self.keys, partitions, elastic, bounds, recovery, patient)
        self._datasets: Mapping[Any, Dataset] = {}
        """Every change is a new mapping: who reads it needs no lock."""
        self._lock = threading.Lock()
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
            QueryFailedError: The rows cannot be computed.
            SessionError: Executors are missing, or lost again and again, for longer than `patience`.
        """
        self._check_new(label)
        with explained(f"{self.name}: computing {label!r}"):
            keyed, schema = self._checked(label, frame)
            dataset = Dataset(label, plain_frame(keyed, self._namespace.keys), kind=self.name)
            with self._admitting(dataset):
                self._namespace.materialise(dataset)
                self._admit(dataset, schema)

    def derive(self, label: Any, function: Function, views: Sequence[View]) -> None:
        """Make a dataset from others, partition by partition: one job without an exchange.

        A running result is derived from the one before and from what is new. What is lost or evicted of a derived
        dataset is made again from the nearest datasets that are there, checkpointed, or were added.

        >>> running.derive("12:00", merge, [running["11:00"], hourly["12:00"]])  # doctest: +SKIP

        Args:
            label: What it is called, as for `add`.
            function: Gets the rows of corresponding partitions as Arrow tables, one for each view, and returns an Arrow
                table: of the same columns for every partition, also an empty one, with no keys but those of the rows
                that it got, and the same every time.
            views: Of this or other collections of the namespace; they may filter, select and join.

        Raises:
            DefinitionError: The label is taken, a view is of another namespace, keys are salted and there are several
                views, or the function gives something else.
            QueryFailedError: The function fails.
        """
        self._check_new(label)
        if not callable(function):
            raise DefinitionError(f"function is {shown(function)}.", "Give a function of a list of Arrow tables.")
        if not isinstance(views, Sequence) or not all(isinstance(view, View) for view in views):
            remedy = "Give a list of views, such as [hourly['12:00']] or [hourly.all()]."
            raise DefinitionError(f"views is {shown(views)}.", remedy)
        if not views:
            raise DefinitionError(f"{self.name}: {label!r} is derived from nothing.", "Give a view, or `add` it.")
        for view in views:
            view.check_namespace(self._namespace)
        parents, made = composed(function, views)
        salted = [key for view in views for key in view.salted]
        if salted and len(parents) > 1:
            raise DefinitionError(
                f"The key {salted[0]} is salted: its rows lie in several partitions, which do not correspond.",
                "Derive from the DataFrames (`df()`) with `add`, or use a larger second bound of `elastic`.",
            )
        recipe = Recipe(tuple(parents), made, self._schema)
        names = tuple(dict.fromkeys(parent.name for parent in parents))
        dataset = Dataset(label, recipe=recipe, kind=self.name, made_from=names, partitioning=parents[0].partitioning)
        for parent in parents:
            parent.used = next(self._actions)
        with explained(f"{self.name}: deriving {label!r}"), self._admitting(dataset):
            self._admit(dataset, self._namespace.derive(dataset))

    def _check_open(self) -> None:
        if self._closed:
            raise DefinitionError(f"{self.name}: the collection is closed.", "Make a new one.")

    def _check_new(self, label: Any) -> None:
        self._check_open()
        if not isinstance(label, Hashable) or label != label:
            raise DefinitionError(f"The label is {shown(label)}.", "Give a number, date or text.")
        if label in self._datasets:
            raise DefinitionError(f"{self.name}: there is a dataset {label!r}.", "Drop it first, or use another label.")
        for known in itertools.islice(self._datasets, 1):
            _comparable(known, label)

    def _checked(self, label: Any, frame: DataFrame) -> tuple[DataFrame, pa.Schema]:
        """Return the rows of a new dataset with its keys called as in the namespace, and their columns.

        Raises:
            DefinitionError: They are not those of the collection.
        """
        from pyspark.errors import PySparkException

        _check_frame(frame)
        keyed = frame
        if self.keys != self._namespace.keys:  # its keys have other names here
            for theirs, mine in zip(self._namespace.keys, self.keys, strict=True):
                if mine not in frame.columns:
                    raise DefinitionError(f"The dataset has no column {mine}.", f"Columns: {', '.join(frame.columns)}.")
                keyed = keyed.withColumnRenamed(mine, theirs)
            column_names(keyed.columns, f"{self.name}: with its keys called as in the namespace, the columns")
        try:
            schema = arrow_schema(keyed)
        except PySparkException as error:
            raise DefinitionError(
                f"{self.name}: the columns of {label!r} cannot be: {classify(error).reason}.", "Cast or drop them."
            ) from None
        if self._schema is not None and not alike(schema, self._schema):
            raise DefinitionError(
                f"{self.name}: the columns of {label!r} are {described(schema)}; "
                f"before they were {described(self._schema)}.",
                "Select and cast the same columns in the same order.",
            )
        self._namespace.placing.check_keys(keyed, schema)
        return keyed, schema

    @contextmanager
    def _admitting(self, dataset: Dataset) -> Iterator[None]:
        """Leave nothing of a dataset behind that does not get into the collection, whatever the reason."""
        try:
            yield
        except BaseException:
            if self._datasets.get(dataset.label) is not dataset:
                self._namespace.forget(dataset)
            raise

    def _admit(self, dataset: Dataset, schema: pa.Schema) -> None:
        """Take a new dataset in.

        Raises:
            DefinitionError: Another thread took its label meanwhile, or closed the collection.
        """
        dataset.used = next(self._actions)
        with self._lock:
            self._check_new(dataset.label)
            self._schema = self._schema or schema
            self._datasets = {**self._datasets, dataset.label: dataset}
        self._make_room(keep={dataset.label})

    def evict(self, *labels: Any) -> None:
        """Free the files of some datasets; they are computed again when they are asked for.

        Raises:
            DefinitionError: There is no dataset of that label.
        """
        for dataset in self._named(labels):
            with explained(f"{self.name}: evicting {dataset.label!r}"):
                self._namespace.free(dataset)

    def drop(self, *labels: Any) -> None:
        """Forget some datasets.

        Raises:
            DefinitionError: There is no dataset of that label.
        """
        for dataset in self._named(labels):
            with self._lock:
                self._datasets = {label: each for label, each in self._datasets.items() if each is not dataset}
            with explained(f"{self.name}: dropping {dataset.label!r}"):
                self._namespace.forget(dataset)

    def close(self) -> None:
        """Forget all datasets, and leave the namespace; nothing can be added any more."""
        with self._lock:
            closed, self._closed = self._closed, True
            datasets, self._datasets = self._datasets, {}
        if not closed:
            with explained(f"{self.name}: closing"):
                for dataset in datasets.values():
                    self._namespace.forget(dataset)
                leave(self._namespace)

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _named(self, labels: Sequence[Any]) -> list[Dataset]:
        self._check_open()
        unknown = [label for label in labels if not isinstance(label, Hashable) or label not in self._datasets]
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
            f"{self._namespace.spec.partitions} partitions in {len(self._namespace.grouping)} groups "
            f"on {len(set(self._namespace.homes))} executors)"
        )

    # ---- questions

    def between(self, start: Any, end: Any) -> View:
        """Return the datasets whose label is in [start, end), in the order of their labels.

        Raises:
            DefinitionError: There is none, or the bounds cannot be compared with labels.
        """
        for known in itertools.islice(self._datasets, 1):
            _comparable(known, start)
            _comparable(known, end)
        return self._view(sorted(label for label in self._datasets if start <= label < end))

    def all(self) -> View:
        """Return all datasets.

        Raises:
            DefinitionError: There is none.
        """
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
        return View(self._namespace, datasets, pa.concat_tables, self._schema, self._terms)


def _check_frame(frame: Any) -> None:
    from pyspark.sql import DataFrame

    if not isinstance(frame, DataFrame):
        remedy = "Give a Spark DataFrame, such as spark.createDataFrame(...) of it."
        raise DefinitionError(f"frame is {type(frame).__module__.partition('.')[0]}.{type(frame).__name__}.", remedy)
    if frame.isStreaming:
        raise DefinitionError("frame is a stream.", "Give a DataFrame that ends, such as the rows of a micro-batch.")
    column_names(frame.columns, "frame.columns")


def _comparable(known: Any, label: Any) -> None:
    try:
        known < label  # noqa: B015
    except TypeError:
        raise DefinitionError(
            f"The label {label!r} cannot be compared with {known!r}.", "Use labels of one type."
        ) from None
