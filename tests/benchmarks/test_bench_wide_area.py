"""What the testbed's feed writes is what is expected of the sites; without root it says what is missing."""

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import testbed
from benchmarks.testbed import NEEDS_ROOT, apart
from benchmarks.wide_feed import Feed
from benchmarks.wide_table_runs import _newest


def test_what_is_expected_are_the_counts_of_all_rows(tmp_path):
    feed = Feed({"A": tmp_path / "A", "B": tmp_path / "B"}, tick=2.0, rows=5, keys=6)
    found: Counter[tuple[int, int]] = Counter()
    for number in (7, 8):
        drafts = feed.drafts(number)
        feed.over(number)
        for draft, path in drafts:
            rows = [json.loads(line) for line in draft.read_text().splitlines()]
            assert (path.parent.name in "AB", len(rows), rows[0]["at"]) == (True, 6, number * 2_000_000)
            found.update((row["at"] // 2_000_000 * 2_000_000 + 2_000_000, row["key"]) for row in rows)
    expected = feed.expected({14_000_000, 16_000_000, 18_000_000})
    assert {(row["window_end"], row["key"]): row["rows"] for row in expected.to_pylist()} == found
    assert expected.schema == pa.schema({name: pa.int64() for name in ("window_end", "key", "rows")})


def test_without_namespaces_it_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(testbed, "possible", lambda: False)
    with pytest.raises(PermissionError, match="root"), apart(tmp_path, tmp_path / "job.py"):
        pass
    assert "ip" in NEEDS_ROOT


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("ms")])
def test_the_newest_window_of_a_file_is_known(tmp_path, kind) -> None:
    starts = pa.array([3_000_000, 9_000_000, None], pa.timestamp("us")).cast(kind)
    pq.write_table(pa.table({"window_start": starts}), tmp_path / "part.parquet")
    assert _newest(tmp_path / "part.parquet") == 9_000_000
