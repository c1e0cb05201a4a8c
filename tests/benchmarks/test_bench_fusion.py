import random
from itertools import pairwise
from statistics import fmean

import pytest
from benchmarks import fused_speed, fusion
from benchmarks.random_jobs import ATTRIBUTES, random_job

from transom.engine.spark.session import private_session


@pytest.mark.parametrize("operators", [4, 8, 50, 150])
def test_random_jobs_are_as_the_paper_says(operators: int) -> None:
    chooser = random.Random(operators)
    for _ in range(20):
        graph = random_job(operators, chooser)
        sizes = [len(operator.partition.names) for operator in graph.operators]
        assert sizes[0] == len(ATTRIBUTES) / 2
        assert all(abs(a - b) <= 3 and b >= 1 for a, b in pairwise(sizes))
        levels = graph.levels
        assert 3 <= max(levels.values()) + 1 <= max(3, 0.75 * operators)
        assert all(levels[edge.target] == levels[edge.source] + 1 for edge in graph.edges)
        for name, edges in graph.downstream.items():
            if levels[name] < max(levels.values()):
                assert len(edges) == sum(level == levels[name] + 1 for level in levels.values())
            assert sum(edge.rows or 0 for edge in edges) <= 1


def test_the_order_of_the_methods_is_that_of_figures_14_and_15() -> None:
    chooser = random.Random(7)
    jobs = [random_job(50, chooser) for _ in range(60)]
    found = {name: [fusion.METHODS[name](job) for job in jobs] for name in ("baseline", "pa", "comm")}
    traffic = {
        name: fmean(fusion.percent(job, each) for job, each in zip(jobs, parts, strict=True))
        for name, parts in found.items()
    }
    components = {name: fmean(map(len, parts)) for name, parts in found.items()}
    assert min(traffic, key=traffic.__getitem__) == "comm"
    assert min(components, key=components.__getitem__) == "pa"


@pytest.mark.slow
def test_the_fast_job_gives_what_spark_gives_fused_or_not(spark: object) -> None:
    rows = 2_000
    session = private_session(spark)
    source = fused_speed.tuples_of(session, rows)
    try:
        right = fused_speed.expected(source)
        assert sum(right["op4"]["n"].to_pylist()) == rows
        stages = [fused_speed.Stage.of(session, queries) for queries in fused_speed.FORMS["fused2"]]
        assert [len(stage.compiled.components) for stage in stages] == [1, 1, 1]
        assert fused_speed.differences("fused2", fused_speed.run_form(stages, source), right) == []
        assert fused_speed.differences("none", {}, right) == [f"none, op{number}" for number in (1, 2, 3, 4)]
    finally:
        source.unpersist()
        for tuples in session.sparkContext._jsc.getPersistentRDDs().values():  # local checkpoints
            tuples.unpersist(False)
