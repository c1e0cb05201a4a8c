from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import latency, results
from benchmarks.feed import Arrival
from benchmarks.ysb import BASE_MS, QUERIES, Events

QUERY = QUERIES[0]
START = BASE_MS * 1_000


def rows(*counts: int, unit: str = "us") -> pa.Table:
    starts = pa.array([START + 10_000_000 * i for i in range(len(counts))])
    return pa.table(
        {
            "window_start": starts.cast(pa.timestamp("us")).cast(pa.timestamp(unit, "UTC")),
            "window_end": pa.array([s + 10_000_000 for s in starts.to_pylist()]).cast(pa.timestamp("us")),
            "campaign_id": ["c"] * len(counts),
            "n": list(counts),
        }
    )


def test_units_order_and_extra_columns_do_not_matter() -> None:
    end = BASE_MS + 60_000
    plain = results.canonical(rows(1, 2, 3), QUERY, end)
    other = rows(1, 2, 3, unit="ns").take(pa.array([2, 0, 1])).append_column("revision", [[0, 0, 0]])
    assert results.differences(results.canonical(other, QUERY, end), plain) == ""
    assert plain["window_start"].to_pylist()[0] == START


def test_a_missing_start_is_computed_from_the_end() -> None:
    end = BASE_MS + 60_000
    without = rows(1, 2).drop_columns(["window_start"])
    assert results.canonical(without, QUERY, end).equals(results.canonical(rows(1, 2), QUERY, end))


@pytest.mark.parametrize(
    "actual, words",
    [((1, 9), "row 1"), ((1,), "1 rows instead of 2"), ((1, 2, 3), "3 rows instead of 2")],
)
def test_differences_are_named(actual: tuple[int, ...], words: str) -> None:
    end = BASE_MS + 60_000
    pair = [results.canonical(rows(*counts), QUERY, end) for counts in (actual, (1, 2))]
    assert words in results.differences(*pair)


def test_windows_of_the_closing_file_and_open_windows_are_left_out() -> None:
    assert len(results.canonical(rows(1, 2, 3), QUERY, BASE_MS + 20_000)) == 2
    assert len(results.canonical(rows(1, 2, 3), QUERY, BASE_MS + 20_000, BASE_MS + 19_999)) == 1


def test_check_reads_a_directory_without_its_metadata(tmp_path: Path) -> None:
    (tmp_path / "_temporary").mkdir()
    pq.write_table(rows(7), tmp_path / "_temporary" / "draft.parquet")
    pq.write_table(rows(1), tmp_path / "a.parquet")
    pq.write_table(rows(1, 2).slice(1), tmp_path / "b.parquet")
    end = BASE_MS + 60_000
    expected = {QUERY.name: results.canonical(rows(1, 2), QUERY, end)}
    assert results.check("x", lambda _: tmp_path, [QUERY], expected, end) == []
    (tmp_path / "b.parquet").unlink()
    assert "1 rows instead of 2" in results.check("x", lambda _: tmp_path, [QUERY], expected, end)[0]
    assert "no result" in results.check("x", lambda _: tmp_path / "none", [QUERY], expected, end)[0]


def test_latency_is_counted_from_the_file_that_closes_the_window(tmp_path: Path) -> None:
    events = Events(rate=10_000, per_file=10_000)
    directory = tmp_path / QUERY.name
    directory.mkdir()
    pq.write_table(rows(1, 2), directory / "a.parquet")
    written = (directory / "a.parquet").stat().st_ctime_ns
    arrived = [Arrival(i, 0, written - (30 - i) * 1_000_000_000) for i in range(25)]
    found = latency.closings(events, arrived, tmp_path, [QUERY], warm_up=0)
    assert [(each.file, each.seconds) for each in found] == [(10, 20.0), (20, 10.0)]
    assert latency.expected_closings(events, 25, [QUERY], warm_up=0) == 2
    assert [each.file for each in latency.closings(events, arrived, tmp_path, [QUERY], warm_up=11)] == [20]
