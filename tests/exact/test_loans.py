"""The example of loans, as `transom run` loads it: each window equals plain Spark over the applications themselves."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from oracle import WATERMARK, BatchQuery, differences, expected
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from transom.cli.loading import load
from transom.model.time import MIN_TIME
from transom.model.window import tumbling

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "loans.py"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load the example with fewer applications, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    build = load(EXAMPLE)
    module = sys.modules["transom_job"]
    monkeypatch.setattr(module, "LOANS", 4_000)
    return build, module


@pytest.mark.slow
def test_every_rate_is_that_of_all_applications(spark: SparkSession, tmp_path: Path, example: Any) -> None:
    build, module = example
    progress = build(spark).run(once=True, close_all=True)
    assert [(query.failure, query.late_rows) for query in progress.queries] == [(None, 0)] * 4
    columns = [F.expr(text).alias(name) for name, text in module.COLUMNS.items()]
    applications = module.interest(spark.range(4_000).select(*columns))
    schema = applications.schema
    table: pa.Table = applications.toArrow()
    windows = tuple(map(tumbling, module.WINDOWS))
    rate, approved = F.expr("avg(interest)"), F.expr("avg(int(approval))")
    loans, number = F.expr("count(interest)"), F.expr("count(*)")
    area = {"area": F.col("area")}
    wanted = expected(
        spark,
        schema,
        table.append_column(WATERMARK, pa.array([MIN_TIME] * len(table), pa.int64())).combine_chunks(),
        "date",
        {
            "interest_by_area": BatchQuery(
                windows, area, {"rate": rate, "income": F.expr("avg(income)"), "loans": loans}
            ),
            "approval_by_area": BatchQuery(windows, area, {"rate": approved, "applications": number}),
            "interest": BatchQuery(windows, {}, {"rate": rate, "loans": loans}),
            "approval": BatchQuery(windows, {}, {"rate": approved, "applications": number}),
        },
    )
    for name, results in wanted.items():
        assert results.num_rows > 80
        actual = pq.read_table(tmp_path / "loans-example" / "out" / name, partitioning=None)
        assert differences(actual, results, 1 if "area" in name else 0, ("rate", "income")) == [], name
