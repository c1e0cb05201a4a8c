"""What all forms of the log mining apply, and what is said of their tasks; without Spark."""

from __future__ import annotations

import pyarrow as pa
from benchmarks.cluster import Stages
from benchmarks.colocality import counting


def test_lines_with_the_keyword_are_counted_by_client() -> None:
    rows = pa.table({"client": ["a", "b", "a", "c"], "line": ["x kibana", "kibana", "kibana y", "kiban"]})
    found = counting("kibana")(rows).sort_by("client")
    assert found.to_pydict() == {"client": ["a", "b"], "count_all": [2, 1]}


def test_no_line_with_the_keyword_is_an_empty_table_of_the_same_columns() -> None:
    rows = pa.table({"client": ["a"], "line": ["x"]})
    assert counting("kibana")(rows).schema == counting("x")(rows).schema
    assert len(counting("kibana")(rows)) == 0


def test_a_keyword_is_a_text_not_a_pattern() -> None:
    rows = pa.table({"client": ["a", "b"], "line": ["GET /robots.txt", "GET /robotsXtxt"]})
    assert counting("robots.txt")(rows).to_pydict() == {"client": ["a"], "count_all": [1]}


def test_tasks_elsewhere_are_not_local() -> None:
    assert Stages(0, {"PROCESS_LOCAL": 3, "NODE_LOCAL": 1}).local_share == 0.75
    assert Stages(0, {"ANY": 2}).local_share == 0.0
