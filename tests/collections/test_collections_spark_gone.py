"""A collection whose Java has died says so, whatever is asked of it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError

from transom.collections.collection import Collection
from transom.engine.spark.isolation import explained
from transom.errors import DefinitionError, SessionError


def test_java_that_does_not_answer_is_a_session_error() -> None:
    with pytest.raises(SessionError, match="Spark is gone"), explained("trips: a question"):
        raise Py4JNetworkError("Answer from Java side is empty")
    with pytest.raises(DefinitionError, match="mine"), explained("trips: a question"):
        raise DefinitionError("mine")


def test_a_collection_without_java() -> None:
    class Gone:
        @property
        def sparkContext(self) -> SimpleNamespace:
            raise Py4JNetworkError("An error occurred while trying to connect to the Java server")

        _jsparkSession = None

    with pytest.raises(SessionError, match="Spark is gone"):
        Collection(Gone(), "trips", ["k"])  # type: ignore[arg-type]


PROGRAM = """
import sys
import transom as tm
from transom.errors import SessionError
spark = tm.session_builder().master("local[1]").getOrCreate()
frame = spark.range(10).withColumnRenamed("id", "k")
trips, other = (tm.Collection(spark, name, ["k"], 2) for name in ("trips", "other"))
for label in range(4):
    trips.add(label, frame)
view, process = trips.all(), spark.sparkContext._gateway.proc
assert view.count() == 40
process.kill(), process.wait()
for name, ask in {
    "count": view.count,
    "table": view.table,
    "df": view.df,
    "add": lambda: trips.add(9, frame),
    "derive": lambda: trips.derive(9, lambda tables: tables[0], [view]),
    "evict": lambda: trips.evict(0),
    "drop": lambda: trips.drop(1),
    "new": lambda: tm.Collection(spark, "third", ["k"]),
    "close": trips.close,
    "close other": other.close,
}.items():
    try:
        ask()
        print(name, "passed")
    except Exception as error:
        print(name, type(error).__name__)
sys.stdout.flush()
"""


@pytest.mark.slow
def test_java_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600, check=False
    ).stdout.splitlines()
    outcomes = dict(line.rsplit(" ", 1) for line in done)
    assert all(outcomes[name] == "SessionError" for name in ("count", "table", "df", "add", "derive", "new")), outcomes
    assert all(outcomes[name] in ("SessionError", "passed") for name in outcomes), outcomes
    assert len(outcomes) == 10
