"""How many executors cluster managers give by themselves, by the settings of Spark."""

from __future__ import annotations

import pytest

from transom.placement.grants import Grant, granted

INSTANCES, MOST, CORES = "spark.executor.instances", "spark.cores.max", "spark.executor.cores"


@pytest.mark.parametrize(
    ("master", "conf", "expected"),
    [
        ("yarn", {}, Grant()),
        ("yarn", {INSTANCES: "3", MOST: "8", CORES: "2"}, Grant(stated=3)),  # only a standalone cluster knows the most
        ("k8s://https://head:6443", {INSTANCES: "3"}, Grant(stated=3)),
        ("spark://head:7077", {}, Grant(True, whole_workers=True)),
        ("spark://one:7077,two:7077", {CORES: "1"}, Grant(True)),
        ("spark://head:7077", {CORES: "2", INSTANCES: "2"}, Grant(True, 2)),
        ("spark://head:7077", {CORES: "2", MOST: "5"}, Grant(True, bound=2)),
        ("spark://head:7077", {CORES: "4", MOST: "2"}, Grant(True, bound=0)),
        ("spark://head:7077", {MOST: "5"}, Grant(True, whole_workers=True)),
        ("spark://head:7077", {CORES: "1", INSTANCES: "0"}, Grant(True)),
        ("spark://head:7077", {CORES: "one", INSTANCES: ""}, Grant(True, whole_workers=True)),
        ("local-cluster[3,1,1024]", {CORES: "1"}, Grant(True)),
    ],
)
def test_grants(master: str, conf: dict[str, str], expected: Grant) -> None:
    assert granted(master, conf.get) == expected
