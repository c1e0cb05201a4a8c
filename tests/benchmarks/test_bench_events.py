import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from benchmarks import results, ysb
from benchmarks.ysb import BASE_MS, QUERIES, Events, Query

SMALL = Events(rate=20, per_file=400)
FILES = 4


def read_events(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(directory.glob("*.json")) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ysb.prefix(tmp_path_factory.mktemp("data"), SMALL, FILES)


def test_events_are_json_of_the_stated_size_in_order(source: Path) -> None:
    events = read_events(source)
    assert len(events) == FILES * SMALL.per_file + 100
    times = [event["event_time"] for event in events]
    assert times == sorted(times)
    assert times[0] == BASE_MS
    assert list(events[0]) == [column.split()[0] for column in ysb.SCHEMA.split(", ")]
    lines = (source / "events-000000.json").read_bytes().splitlines()
    assert 235 < sum(map(len, lines)) / len(lines) < 265
    shares = Counter(event["event_type"] for event in events[:-100])
    assert all(0.28 < count / (FILES * SMALL.per_file) < 0.39 for count in shares.values())


def test_file_times_follow_the_order_of_names(source: Path) -> None:
    paths = sorted(source.glob("*.json"))
    times = [path.stat().st_mtime for path in paths]
    assert times == sorted(times)
    assert len(set(times)) == len(times)


def test_the_closing_file_lies_behind_every_window(source: Path) -> None:
    last = json.loads((source / "events-closing.json").read_text().splitlines()[0])
    assert last["event_time"] > SMALL.end_ms(FILES) + 600_000


def test_queries_are_sixteen_and_distinct() -> None:
    kinds = {(query.window, query.slide, query.by_page, query.last) for query in QUERIES}
    assert len(kinds) == len(QUERIES) == 16
    assert sum(query.by_page for query in QUERIES) == 8
    assert {(query.window, query.slide) for query in QUERIES[:4]} == set(ysb.WINDOWS)


def test_the_many_queries_are_64_and_distinct() -> None:
    kinds = {(query.window, query.slide, query.by_page, query.values) for query in ysb.MANY_QUERIES}
    assert len(kinds) == len({query.name for query in ysb.MANY_QUERIES}) == 64
    assert ysb.MANY_QUERIES[:16] == QUERIES


@pytest.mark.parametrize("query", [*QUERIES, ysb.MANY_QUERIES[-1], ysb.ONE_QUERY], ids=lambda query: query.name)
def test_oracle_agrees_with_a_plain_loop(source: Path, query: Query) -> None:
    campaign = dict(zip(*(column.to_pylist() for column in ysb.ads().columns), strict=True))
    count: Counter[tuple[object, ...]] = Counter()
    times: dict[tuple[object, ...], list[int]] = {}
    for event in read_events(source):
        if event["event_type"] != "view":
            continue
        time = int(str(event["event_time"]))
        keys = [campaign[event["ad_id"]], event["page_id"]][: len(query.keys)]
        start = time // (query.slide * 1_000) * query.slide * 1_000
        while start > time - query.window * 1_000:
            slot = (start * 1_000, (start + query.window * 1_000) * 1_000, *keys)
            count[slot] += 1
            times.setdefault(slot, []).append(time)
            start -= query.slide * 1_000
    edges = {"n": len, "last": max, "first": min}
    rows = [(*slot, *(edges[value](times[slot]) for value in query.values)) for slot in count]
    names = ["window_start", "window_end", *query.keys, *query.values]
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    end = SMALL.end_ms(FILES)
    expected = ysb.oracle(SMALL, FILES, (query,))[query.name]
    assert results.differences(results.canonical(table, query, end), expected) == ""
    assert expected.num_rows > 0
