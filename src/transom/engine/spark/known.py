"""The namespaces of an application, by name: collections share them, and the last one that leaves frees the name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transom.engine.spark.checkpointing import Recovery
from transom.engine.spark.namespaces import Namespace
from transom.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KNOWN: dict[tuple[str, str], Namespace] = {}


def joined(
    spark: SparkSession,
    name: str,
    keys: Sequence[str],
    partitions: int,
    elastic: tuple[int, int] | None = None,
    bounds: Sequence[Any] | None = None,
    recovery: Recovery | None = None,
) -> Namespace:
    """Return the namespace of this name in the application, a new one if there is none; until `leave`.

    Raises:
        DefinitionError: It exists and is partitioned in another way, or has another bound for recovery.
    """
    application = spark.sparkContext.applicationId
    for other in [each for each in _KNOWN if each[0] != application]:
        del _KNOWN[other]
    known = _KNOWN.get((application, name))
    if known is None:
        known = Namespace(spark, name, keys, partitions, elastic, bounds=bounds)
    else:
        _check_alike(known, keys, partitions, elastic, bounds)
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
    bounds: Sequence[Any] | None,
) -> None:
    wanted = None if bounds is None else tuple(bounds)
    for field, there, given in (
        ("partitions", known.partitions, partitions),
        ("keys", len(known.keys), len(keys)),
        ("bounds", known.partitioning.bounds, wanted),
        ("elastic", known.elastic, known.elastic if elastic is None else elastic),
    ):
        if there != given:
            what = "number of keys" if field == "keys" else field
            raise DefinitionError(
                f"{what} is {given}; in the namespace {known.name!r} it is {there}.",
                "Datasets of one namespace are partitioned alike: give the same, or another namespace.",
            )


def leave(known: Namespace) -> None:
    """Note that a collection is closed; with the last one the name is free for other partitions."""
    known.users -= 1
    if known.users == 0:
        if known.checkpointer is not None:
            known.checkpointer.close()
        _KNOWN.pop((known.spark.sparkContext.applicationId, known.name), None)
