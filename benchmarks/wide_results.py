"""Whether the results of sites are those of one Spark batch over the rows of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.wide_table_job import WINDOW, aggregates_of, schema_of


def shown(paths: Iterable[Path]) -> list[Path]:
    """Return the files that Spark reads: not those that are being written."""
    return [path for path in paths if not path.name.startswith((".", "_"))]


def wrong(work: Path, sources: Sequence[str], queries: Sequence[str], workload: str) -> list[str]:
    """Return in which way results differ from those of one Spark batch over the files of all sites."""
    from pyspark.sql import SparkSession

    without = [site for site in sources if not shown((work / site).glob("*.parquet"))]
    found = [f"{workload}: {site} has no rows" for site in without]
    if len(without) == len(sources):
        return found
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.session.timeZone", "UTC").config("spark.driver.memory", "2g").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        names = list(aggregates_of(workload))
        values = ["count(*) n"]
        for name in names[1:]:
            column, what = name.rsplit("_", 1)
            values.append(f"{what}({column}) {name}")
        there = [str(work / site) for site in sources if site not in without]
        rows = session.read.schema(schema_of(workload)).parquet(*there)
        rows.createOrReplaceTempView("rows")
        for number, query in enumerate(queries):
            if not shown((work / "results" / query).glob("*.parquet")):
                found.append(f"{workload}, {query}: there are no results")
                continue
            number_of = f"div {WINDOW * 1_000_000} w"
            mine = f"FROM rows WHERE q = {number} GROUP BY 1, 2"
            expected = session.sql(f"SELECT at {number_of}, key, {', '.join(values)} {mine}")
            given = session.read.parquet(str(work / "results" / query))
            results = given.selectExpr(f"unix_micros(window_start) {number_of}", "key", *names)
            missing = expected.exceptAll(results).count()
            more = results.count() - expected.count() + missing
            if missing or more:
                found.append(f"{workload}, {query}: {missing} results are missing, {more} are not those of one batch")
        return found
    finally:
        session.stop()
