import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
from benchmarks import scale_jobs, ysb
from benchmarks.scale_jobs import Readings
from benchmarks.scale_virtual import Reach, many, reaches, second_driver
from benchmarks.ysb import Events
from tests.planning.profiles import profile, stream

from transom.model.phases import Phase
from transom.planning.profile import PhaseCost, Profile

SMALL = Events(rate=20, per_file=400)


def test_a_thousand_queries_differ_and_begin_with_the_sixteen() -> None:
    queries = scale_jobs.queries(1_000)
    assert queries[:16] == ysb.QUERIES
    assert len({replace(query, name="") for query in queries}) == len({query.name for query in queries}) == 1_000


def test_a_query_of_some_pages_has_the_rows_that_its_condition_says() -> None:
    all_pages, some = scale_jobs.queries(18)[1::16]
    condition = str(some.condition)
    first, last = condition.split("'")[1::2]
    tables = ysb.oracle(SMALL, 4, (all_pages, some))
    whole, part = tables[all_pages.name], tables[some.name]
    inside = pc.and_(pc.greater_equal(whole["page_id"], first), pc.less_equal(whole["page_id"], last))
    assert 0 < part.num_rows < whole.num_rows
    assert part.equals(whole.filter(inside))


def test_files_that_follow_have_the_results_of_their_own_rows() -> None:
    (query,) = scale_jobs.queries(1)  # its windows are as long as files are apart
    whole = ysb.oracle(SMALL, 4, (query,))[query.name]
    parts = [ysb.oracle(SMALL, last, (query,), start=first)[query.name] for first, last in ((0, 1), (1, 4))]
    assert sum(pc.sum(part["n"]).as_py() for part in parts) == pc.sum(whole["n"]).as_py()


def test_readings_have_each_key_as_often_as_any_other(tmp_path: Path) -> None:
    shape = Readings(keys=100, rate=100, per_file=250)
    files = sorted(scale_jobs.write_readings(tmp_path, shape, 4).glob("*.json"))
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert set(Counter(row["key"] for row in rows).values()) == {10}
    found: Counter[tuple[int, int]] = Counter()
    for row in rows:
        found[row["at"] // 5_000 * 5_000_000, row["key"]] += row["value"]
    sums = scale_jobs.right_sums(shape, len(rows), 5)
    assert {(row["window_start"], row["key"]): row["total"] for row in sums.to_pylist()} == found


def of_queries(count: int) -> Profile:
    costs = {**stream().costs, Phase.MAP: PhaseCost(0.01, 1e-6 + count * 1e-8)}
    few = stream(fanout=float(count), results=5.0 * count, closing=10.0, most_rows=100_000.0)
    return profile(s=replace(few, costs=costs))


def test_costs_of_many_queries_lie_on_the_line_through_those_of_few() -> None:
    found = many(of_queries(64), of_queries(256), (64, 256), 10_000).streams["s"]
    assert found.cost(Phase.MAP).each == pytest.approx(1e-6 + 10_000 * 1e-8)
    assert found.fanout == pytest.approx(10_000)
    assert found.cost(Phase.DELIVER).each == pytest.approx(stream().cost(Phase.DELIVER).each)
    assert found.results == pytest.approx(50_000)


def test_more_executors_do_more_until_something_else_bounds() -> None:
    found = list(reaches(of_queries(256), (10, 20, 50), 10.0, 100_000.0))
    rates = [reach.rate for reach in found]
    assert rates == sorted(rates)
    assert all(reach.bound for reach in found)


def test_a_second_driver_pays_where_halves_do_more() -> None:
    found = [Reach(executors, rate, {}, {}) for executors, rate in ((10, 100.0), (20, 195.0), (40, 210.0))]
    halves = [Reach(executors, rate, {}, {}) for executors, rate in ((5, 99.0), (10, 200.0), (20, 380.0))]
    assert second_driver(found, halves) == 40
    assert second_driver(found[:2], halves[:2]) is None
