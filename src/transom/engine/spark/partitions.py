"""Sessions that differ in the number of tasks after an exchange, so that it goes with a job and not with all jobs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

_lock = threading.Lock()
_copies: WeakKeyDictionary[SparkSession, dict[int, SparkSession]] = WeakKeyDictionary()


def with_partitions(session: SparkSession, partitions: int | None) -> SparkSession:
    """Return a copy of a classic session in which aggregations have so many tasks after an exchange.

    The copy has the context, views, functions and settings of the session as they are when it is first asked for.

    Args:
        session: Transom's session.
        partitions: The number; None for the session itself.
    """
    if partitions is None:
        return session
    from pyspark.sql import SparkSession as Classic

    with _lock:
        copies = _copies.setdefault(session, {})
        if partitions not in copies:
            copy = Classic(session.sparkContext, session._jsparkSession.cloneSession())
            copy.conf.set(SHUFFLE_PARTITIONS, str(partitions))
            copies[partitions] = copy
        return copies[partitions]


def with_copies(session: SparkSession) -> list[SparkSession]:
    """Return a session and its copies: each has jobs of its own."""
    with _lock:
        return [session, *_copies.get(session, {}).values()]
