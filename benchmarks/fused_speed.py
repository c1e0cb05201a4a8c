"""The paper's fast job: four consecutive aggregations over 1, 5, 10 and 20 minutes, of which 0, 2, 3 or 4 are fused.

Tuples (user, value, time) flow on from the first operator to the last, as in section 7.7 of the Enorm paper. Fused
operators are what Transom makes of their queries: one component, one pass over the tuples, one exchange of partials.
To the next component the tuples are handed over as between any two operators whose partitioning is not known to be
the same: through an exchange by their key. Nothing else differs between the forms.

Tuples that a component reads and hands on as well are kept by `localCheckpoint`, on the first reading: of what Spark
offers (cache in memory or on disk, files) it costs least, about half of `persist`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.harness import CORES, Run, benchmark, paired_ratio
from transom.engine.partials.tables import PartialTable, describe_table
from transom.engine.spark import jobs
from transom.engine.spark.compile import Compiled, compile_queries
from transom.engine.spark.plan import Rows
from transom.engine.spark.session import private_session, session_builder
from transom.engine.state.state import StreamState
from transom.engine.state.watermarks import WatermarkState
from transom.model.expression import Expression
from transom.model.time import MAX_TIME
from transom.model.window import tumbling
from transom.windows.aggregates import functions
from transom.windows.query import Key, WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPERATORS = tuple(
    WindowedQuery(
        f"op{number}",
        0,
        (Key("user", Expression("user")),),
        (tumbling(f"{minutes} minutes"),),
        (("n", functions.count()), ("total", functions.sum("value")), ("largest", functions.max("value"))),
    )
    for number, minutes in enumerate((1, 5, 10, 20), 1)
)
FORMS: dict[str, tuple[tuple[WindowedQuery, ...], ...]] = {
    "fused0": tuple((one,) for one in OPERATORS),
    "fused2": (OPERATORS[:2], OPERATORS[2:3], OPERATORS[3:]),
    "fused3": (OPERATORS[:3], OPERATORS[3:]),
    "fused4": (OPERATORS,),
}
"""The components of each form, in the order in which tuples pass through them."""
ROWS, QUICK_ROWS = 4_000_000, 2_000_000
USERS = 1_000
MINUTES = 60
SCHEMA = "user bigint, value bigint, at timestamp"
RESULT = pa.schema(
    [("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))]
    + [(name, pa.int64()) for name in ("user", "n", "total", "largest")]
)
COLUMNS = RESULT.names
REDUCED = f"{QUICK_ROWS:,} tuples instead of {ROWS:,}, at most 5 repeats instead of 9"


@dataclass(frozen=True)
class Stage:
    """One component: the operators that are fused in it."""

    compiled: Compiled

    @classmethod
    def of(cls, session: SparkSession, queries: Sequence[WindowedQuery]) -> Stage:
        """Compile the operators."""
        schema = session.createDataFrame([], SCHEMA).schema
        return cls(compile_queries(session, schema, Rows(Expression("at"), ((),)), queries))

    def results(self, tuples: DataFrame) -> dict[str, pa.Table]:
        """Run the component's job, merge its partials to windows, and return the results by operator."""
        compiled = self.compiled
        partials = jobs.run_cut(tuples, compiled.plan, partitions=1, ahead=None)
        state = StreamState(compiled.queries, WatermarkState.start(1), None, ansi=True)
        state.arrange(compiled.stores)
        tables = [
            PartialTable.of(describe_table(table, note))
            for table, note in zip(partials.tables, compiled.plan.notes, strict=True)
        ]
        state.commit(tables, None, state.watermark)
        closings = state.close(MAX_TIME, 1, 0, state.closed_by(MAX_TIME))
        return {closing.query: closing.results.table for closing in closings if closing.results is not None}


def run_form(stages: Sequence[Stage], source: DataFrame) -> dict[str, pa.Table]:
    """Run the components one after the other, each on what the one before hands on; return all results."""
    found: dict[str, pa.Table] = {}
    tuples = source
    for number, stage in enumerate(stages):
        if number:
            tuples = tuples.repartition(CORES, "user")
            if number < len(stages) - 1:
                tuples = tuples.localCheckpoint(eager=False)
        found.update(stage.results(tuples))
    return found


def tuples_of(session: SparkSession, rows: int) -> DataFrame:
    """Return tuples in order of time, over an hour, kept in memory: what they cost to read is no operator's."""
    from pyspark.sql import functions as F

    ids = session.range(0, rows, numPartitions=4 * CORES)
    step = MINUTES * 60_000_000 // rows
    tuples = ids.select(
        F.expr(f"pmod(xxhash64(id), {USERS})").alias("user"),
        F.expr("pmod(xxhash64(id, 1), 10000)").alias("value"),
        F.timestamp_micros(F.col("id") * step).alias("at"),
    ).persist()
    tuples.count()
    return tuples


def expected(source: DataFrame) -> dict[str, pa.Table]:
    """Return what plain Spark batch gives."""
    from pyspark.sql import functions as F

    found = {}
    for query in OPERATORS:
        (window,) = query.windows
        grouped = source.groupBy(F.window("at", f"{window.length // 1_000_000} seconds"), "user").agg(
            F.count("*").alias("n"), F.sum("value").alias("total"), F.max("value").alias("largest")
        )
        found[query.name] = grouped.select("window.start", "window.end", "user", "n", "total", "largest").toArrow()
    return found


def differences(form: str, found: dict[str, pa.Table], right: dict[str, pa.Table]) -> list[str]:
    """Return which operators' results are not what they should be."""
    return [f"{form}, {name}" for name in right if name not in found or _sorted(found[name]) != _sorted(right[name])]


def _sorted(table: pa.Table) -> pa.Table:
    table = table.rename_columns(COLUMNS).combine_chunks().cast(RESULT)
    return table.sort_by([(name, "ascending") for name in COLUMNS[:3]])


def measure(run: Run, session: SparkSession, rows: int, repeats: int) -> dict[str, list[float]]:
    """Run all forms in turn; return seconds by form."""
    source = tuples_of(session, rows)
    right = expected(source)
    forms = {form: [Stage.of(session, queries) for queries in parts] for form, parts in FORMS.items()}
    for form, stages in forms.items():
        run.check(differences(form, run_form(stages, source), right))
    run.say("warm")
    seconds: dict[str, list[float]] = {form: [] for form in forms}
    for _ in run.repeats(repeats, reserve=5):
        for form, stages in forms.items():
            # Tuples of the form before, which Spark forgets when its JVM has collected its garbage.
            session._jvm.System.gc()
            begin = time.monotonic()
            found = run_form(stages, source)
            seconds[form].append(time.monotonic() - begin)
            run.check(differences(form, found, right))
        run.say(", ".join(f"{form} {each[-1]:.2f} s" for form, each in seconds.items()))
    source.unpersist()
    return seconds


def main() -> None:
    """Run the benchmark."""
    with benchmark("fused_speed", REDUCED) as run:
        spark = (
            session_builder()
            .master(f"local[{CORES}]")
            .appName("fused_speed")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "4g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.local.dir", str(run.work))
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        session = private_session(spark)
        rows, repeats = (QUICK_ROWS, 5) if run.quick else (ROWS, 9)
        seconds = measure(run, session, rows, repeats)
        ratio = paired_ratio(seconds["fused0"], seconds["fused4"])
        for form, each in seconds.items():
            run.figure(f"{form}.s", median(each))
        run.figure("speedup", ratio.median)
        run.table(
            f"{rows:,} tuples through four operators",
            ["fused", "components", "s", "fused0 / this"],
            [
                [form, len(FORMS[form]), median(each), paired_ratio(seconds["fused0"], each).median]
                for form, each in seconds.items()
            ],
        )
        run.say(f"not fused / all fused: {ratio}")
        spark.stop()


if __name__ == "__main__":
    main()
