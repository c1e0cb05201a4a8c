"""Scanners for the files of a source: on this machine, in a store of objects, or in the log of a Delta table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from transom.errors import SourceError
from transom.model.time import Clock
from transom.sources.filesets.deltalog import DeltaLog
from transom.sources.filesets.listing import ObjectScanner, parse_object_pattern
from transom.sources.filesets.scan import Pattern, Scanner
from transom.storage.hadoop import require_spark_reads
from transom.storage.places import is_local, located

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AnyScanner: TypeAlias = Scanner | ObjectScanner | DeltaLog


def scanner_of(spark: SparkSession, paths: Sequence[str], clock: Clock) -> AnyScanner:
    """Return what looks for the files.

    Raises:
        SourceError: They are partly here and partly in a store, or a directory cannot be listed, here or by Spark.
    """
    here = [is_local(path) for path in paths]
    if all(here):
        patterns = [pattern for path in paths for pattern in Pattern.parse(path)]
        for pattern in patterns:
            if not os.path.isdir(pattern.base):
                raise SourceError(
                    f"files: the directory {pattern.base} does not exist.", "Create it, or correct the path."
                )
        return Scanner(patterns)
    if any(here):
        raise SourceError("files: some paths are on this machine, some in a store.", "Make two streams of them.")
    try:
        patterns = [pattern for path in paths for pattern in parse_object_pattern(path)]
        for pattern in patterns:
            located(pattern.base).is_dir()
    except OSError as error:
        raise SourceError(f"files: {error}.", "Correct the path, or what the environment says of the store.") from error
    for path in paths:
        require_spark_reads(spark, located(path), "files", SourceError)
    return ObjectScanner(patterns, clock)
