"""The namespaces of an application, by name: collections share them, and the last one that leaves frees the name."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from transom.collections.checkpointing import Recovery
from transom.collections.namespaces import PATIENCE, Namespace, NamespaceSpec
from transom.engine.placed.outlasting import outlasting
from transom.errors import DefinitionError, SessionError
from transom.model.sessions import is_connect
from transom.model.time import Micros, SystemClock, format_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KNOWN: dict[tuple[str, str], Namespace] = {}
_LOCK = threading.Lock()


def joined(
    spark: SparkSession,
    name: str,
    keys: Sequence[str],
    partitions: int,
    elastic: tuple[int, int] | None = None,
    bounds: Sequence[Any] | None = None,
    recovery: Recovery | None = None,
    patience: Micros | None = None,
) -> Namespace:
    """Return the namespace of this name in the application, a new one if there is none; until `leave`.

    Raises:
        DefinitionError: It exists and is partitioned in another way, or has another bound for recovery.
        SessionError: It is no classic session, or has no executor for as long as `patience`.
    """
    if is_connect(spark):
        raise SessionError(
            f"spark is {type(spark).__name__}: collections need a classic Spark session, not one of Spark Connect.",
            "Make it with session_builder() on the machine of the driver.",
        )
    application = spark.sparkContext.applicationId
    _check_elastic(elastic)
    bounds = _bounds(bounds)
    with _LOCK:
        for other in [each for each in _KNOWN if each[0] != application]:
            del _KNOWN[other]
        known = _KNOWN.get((application, name))
        if known is None:
            bound = PATIENCE if patience is None else patience

            def made() -> Namespace:
                return Namespace(spark, name, NamespaceSpec(tuple(keys), partitions, elastic, bounds, bound))

            known = outlasting(made, bound, SystemClock())
        else:
            _check_alike(known, keys, partitions, elastic, bounds, patience)
        if recovery is not None:
            known.recover(recovery)
        _KNOWN[application, name] = known
        known.users += 1
        return known


def _check_alike(
    known: Namespace,
    keys: Sequence[str],
    partitions: int,
    elastic: tuple[int, int] | None,
    bounds: tuple[Any, ...] | None,
    patience: Micros | None,
) -> None:
    spec = known.spec
    for field, there, given in (
        ("partitions", spec.partitions, partitions),
        ("keys", len(spec.keys), len(keys)),
        ("bounds", spec.bounds, bounds),
        ("elastic", spec.elastic, spec.elastic if elastic is None else elastic),
        ("patience", *map(format_duration, (spec.patience, spec.patience if patience is None else patience))),
    ):
        if there != given:
            what = "number of keys" if field == "keys" else field
            raise DefinitionError(
                f"{what} is {given}; in the namespace {known.name!r} it is {there}.",
                "Datasets of one namespace are partitioned alike: give the same, or another namespace.",
            )


def leave(known: Namespace) -> None:
    """Note that a collection is closed; with the last one the name is free for other partitions."""
    with _LOCK:
        known.users -= 1
        if known.users > 0:
            return
        for key in [key for key, other in _KNOWN.items() if other is known]:
            del _KNOWN[key]
    if known.checkpointer is not None:
        known.checkpointer.close()


def _bounds(bounds: Any) -> tuple[Any, ...] | None:
    """Return bounds as a tuple.

    Raises:
        DefinitionError: They are neither None nor a list.
    """
    if bounds is None:
        return None
    if isinstance(bounds, str) or not isinstance(bounds, Iterable):
        raise DefinitionError(f"bounds is {bounds!r}.", "Give a list: the first key of each partition but the first.")
    return tuple(bounds)


def _check_elastic(elastic: Any) -> None:
    """Make sure that it is None or two numbers of bytes.

    Raises:
        DefinitionError: It is not.
    """
    if elastic is None:
        return
    numbers = isinstance(elastic, Sequence) and [isinstance(each, int) for each in elastic] == [True, True]
    if not numbers or not 0 <= elastic[0] <= elastic[1]:
        raise DefinitionError(f"elastic is {elastic!r}.", "Give bytes for the smallest and the largest group: (a, b).")
