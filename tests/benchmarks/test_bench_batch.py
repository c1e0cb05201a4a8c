from pathlib import Path

import pytest
from benchmarks import results, ysb
from benchmarks.worker import Worker, WorkerError
from benchmarks.ysb import QUERIES, Events

pytest.importorskip("duckdb")
pytest.importorskip("polars")

EVENTS = Events(rate=100, per_file=1_500)


def test_duckdb_and_polars_give_the_oracle_results(tmp_path: Path) -> None:
    source = ysb.prefix(tmp_path, EVENTS, 2)
    expected = ysb.oracle(EVENTS, 2)
    with Worker("batch", tmp_path) as worker:
        for engine in ("duckdb", "polars"):
            output = tmp_path / engine
            report = worker.call("catchup", engine=engine, source=source, output=output, count=16)
            assert report["seconds"] > 0
            wrong = results.check(engine, lambda q: output / q.name, QUERIES, expected, EVENTS.end_ms(2))  # noqa: B023
            assert wrong == []
        with pytest.raises(WorkerError, match="unknown-engine"):
            worker.call("catchup", engine="unknown-engine", source=source, output=tmp_path / "x", count=1)
