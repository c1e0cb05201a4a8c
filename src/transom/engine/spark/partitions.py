"""Sessions that differ in how jobs are divided into tasks, so that it goes with a job and not with all jobs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
FILE_PARTITIONS = "spark.sql.files.maxPartitionBytes"
SMALL = 4 << 20
"""Bytes of a piece of a file where the number of tasks is set: small pieces make tasks that are about equal. Spark
alone fills one task after the other up to 32 MB: 15 files of 3 MB are three tasks, of which two cores read two and
one."""

_lock = threading.Lock()
_copies: WeakKeyDictionary[SparkSession, dict[tuple[int | None, bool], SparkSession]] = WeakKeyDictionary()


def with_partitions(session: SparkSession, partitions: int | None, small: bool = False) -> SparkSession:
    """Return a copy of a classic session with another number of tasks after an exchange, or smaller pieces of files.

    The copy has the context, views, functions and settings of the session as they are when it is first asked for.

    Args:
        session: Transom's session.
        partitions: Tasks after an exchange; None for as many as in the session.
        small: Whether files are read in pieces of `SMALL` bytes at most; who reads them puts them together to tasks.

    Returns:
        The session itself where nothing differs.
    """
    if partitions is None and not small:
        return session
    from pyspark.sql import SparkSession as Classic

    with _lock:
        copies = _copies.setdefault(session, {})
        if (partitions, small) not in copies:
            copy = Classic(session.sparkContext, session._jsparkSession.cloneSession())
            if partitions is not None:
                copy.conf.set(SHUFFLE_PARTITIONS, str(partitions))
            if small:
                copy.conf.set(FILE_PARTITIONS, str(SMALL))
            copies[partitions, small] = copy
        return copies[partitions, small]


def with_copies(session: SparkSession) -> list[SparkSession]:
    """Return a session and its copies: each has jobs of its own."""
    with _lock:
        return [session, *_copies.get(session, {}).values()]
