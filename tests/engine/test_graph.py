"""The operator graph of compiled queries, how it is fused, and how `explain` shows it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from benchmarks.fusing.fusion import fuse, traffic
from pyspark.sql import functions as F
from rich.console import Console

import transom as tm
from transom.api.app import App
from transom.cli.loading import load
from transom.engine.explain.explain import explain
from transom.engine.explain.explanation import Explanation
from transom.engine.explain.fused import fused_as_run
from transom.engine.explain.graph import Rate, Rates, StreamGraph
from transom.engine.explain.picture import tree
from transom.engine.spark.compile import compile_queries
from transom.engine.spark.session import private_session
from transom.sinks.inmemory import MemorySink
from transom.sinks.printing import plain_json
from transom.sources.inmemory import memory
from transom.windows.aggregates.mean import Mean
from transom.windows.components import DEFAULT, Arrangement
from transom.windows.operators import Fused, OperatorKind

SCHEMA = "user bigint, area string, fare double, at timestamp"


@pytest.fixture(scope="module")
def app(spark, tmp_path_factory):
    """Finer and coarser keys with a global query, another key, a condition, and a chain."""
    app = App(spark, tmp_path_factory.mktemp("graph") / "checkpoint", name="taxis")
    trips = app.stream(memory(SCHEMA), event_time="at", watermark="5 seconds", name="trips")
    sink = MemorySink()
    fine = trips.group_by("user", "area").window("1 minute", tm.sliding("1 hour", every="1 minute"))
    spans = fine.agg(n=tm.count(), fare=tm.avg("fare"))
    spans.to(sink, "fine")
    trips.group_by("area").window("5 minutes").agg(fare=tm.avg("fare")).within("2 seconds").to(sink, "coarse")
    trips.window("5 minutes").agg(n=tm.count()).to(sink, "all")
    trips.group_by(hour=F.hour("at")).window("1 day").agg(p=tm.quantile("fare", 0.5)).to(sink, "hours")
    trips.where("fare > 9").group_by("area").window("1 minute").agg(n=tm.count()).to(sink, "dear")
    spans.results().group_by("area").window("1 day").agg(best=tm.max("fare")).to(sink, "day")
    return app


@pytest.fixture(scope="module")
def plan(app):
    return app.explain().to_dict()


def compiled_as(app, arrangement):
    definition = app._definitions()[0]
    session = private_session(app.spark)
    schema = definition.source.schema
    return compile_queries(session, schema, definition.rows, definition.queries, arrangement=arrangement)


@pytest.fixture(scope="module")
def compiled(app):
    return compiled_as(app, DEFAULT)


def test_the_graph_has_maps_computes_and_consolidates(plan):
    operators = {o["name"]: o for o in plan["graph"]["operators"]}
    fine = operators["trips/compute area, user"]
    assert (fine["kind"], fine["partitioned_by"], fine["partitions"]) == ("compute", ["area", "user"], None)
    assert fine["inputs"] == [{"event time": "int64", "area": "string", "user": "int64", "fare": "double"}]
    assert {"pane start", "area", "user"} < set(fine["output"])
    top = operators["trips/map 0"]
    assert (top["kind"], top["partitioned_by"], top["partitions"]) == ("map", "all", "unbounded")
    assert top["inputs"] == [{"user": "bigint", "area": "string", "fare": "double", "at": "timestamp"}]
    whole = operators["trips/consolidate all"]
    assert (whole["partitioned_by"], whole["partitions"]) == ([], 1)
    assert set(whole["output"]) == {"window_start", "window_end", "n"}
    edges = {(edge["from"], edge["to"]) for edge in plan["graph"]["edges"]}
    assert ("trips/map 0", "trips/compute area, user") in edges
    assert ("trips/compute area, user", "trips/consolidate fine") in edges
    assert ("trips/consolidate fine", "fine.results/map 0") in edges
    assert operators["trips/compute area"]["from_partials_of"] == "trips/compute area, user"
    assert operators["trips/compute area where fare > 9"]["where"] == "fare > 9"


def test_every_operator_is_in_one_component_and_fused_ones_have_an_attribute_in_common(plan):
    held = [name for component in plan["graph"]["components"] for name in component["operators"]]
    assert sorted(held) == sorted(operator["name"] for operator in plan["graph"]["operators"])
    of = {name: c for c in plan["graph"]["components"] for name in c["operators"]}
    assert of["trips/compute area"] is of["trips/compute area, user"]
    assert of["trips/compute area"]["partitioned_by"] == ["area"]
    assert of["trips/compute all rows"]["operators"] == ["trips/compute all rows"]
    assert of["trips/compute all rows"]["runs_on"] == "driver"
    assert of["trips/compute area, user"]["runs_on"] == "executors"
    assert of["trips/map 0"]["operators"] == ["trips/map 0"], "read by two components"
    chained = of["fine.results/map 0"]
    assert [name.split()[0] for name in chained["operators"]] == ["fine.results/map", "fine.results/compute"]
    for component in plan["graph"]["components"]:
        assert len(component["operators"]) == 1 or component["partitioned_by"]


def test_measured_rates_decide_what_is_fused(compiled):
    unmeasured = StreamGraph(compiled, "stream").graph
    assert unmeasured.weights is None
    assert all(isinstance(component, Fused) for component in fuse(unmeasured))
    computes = StreamGraph(compiled, "stream").computes
    rows = {compute.name: Rate(1_000.0) for compute in computes}
    partials = {compute.name: Rate(10.0) for compute in computes}
    hours = next(c.name for c in computes if "hour" in c.name)
    for busy in (hours, "stream/compute area, user"):
        rates = Rates(rows | {busy: Rate(9_000.0)}, partials, keys={busy: 24})
        graph = StreamGraph(compiled, "stream", rates=rates).graph
        assert graph[busy].cardinality == 24
        components = fuse(graph)
        (first,) = [component for component in components if "stream/map 0" in component]
        assert (busy in first) or busy != hours
        assert traffic(graph, components) < sum(graph.weights)
        assert any(operator.kind is OperatorKind.CONSOLIDATE for operator in first), "partials need not travel"


def test_the_loans_are_fused_as_in_the_paper(spark, tmp_path, monkeypatch):
    """Figure 4: map and computes per area together, their consolidates apart, the global operators each alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    graph = load(Path(__file__).resolve().parents[2] / "examples" / "loans.py")(spark).explain().graph
    kinds = {operator["name"]: operator["kind"] for operator in graph["operators"]}
    found = [(sorted(kinds[name] for name in c["operators"]), c["partitioned_by"]) for c in graph["components"]]
    assert found[:2] == [(["compute", "map"], ["area"]), (["consolidate", "consolidate"], ["area"])]
    assert found[2:] == 2 * [(["map"], "all"), (["compute"], []), (["consolidate"], [])]


@pytest.mark.parametrize("itself", [False, True])
def test_a_join_is_fused_with_what_is_partitioned_by_its_keys(spark, tmp_path, itself):
    app = App(spark, tmp_path / "checkpoint")
    left = app.stream(memory(SCHEMA), event_time="at", name="left")
    right = (
        left if itself else app.stream(memory("USER bigint, note string, t timestamp"), event_time="t", name="right")
    )
    other = right.map(lambda df: df.selectExpr("user", "area AS place", "_event_micros")) if itself else right
    joined = app.join(left, other, on=["user"], window="1 minute", name="both")
    joined.group_by("user").window("1 hour").agg(n=tm.count()).to(MemorySink(), "users")
    plan = app.explain().to_dict()
    operators = {operator["name"]: operator for operator in plan["graph"]["operators"]}
    join = operators["both/join"]
    assert (join["kind"], join["partitioned_by"]) == ("join", ["user"])
    assert [set(side) >= {"user"} for side in join["inputs"]] == [True, True]
    assert {"window_start", "window_end", "user", "fare"} <= set(join["output"])
    into = {edge["from"] for edge in plan["graph"]["edges"] if edge["to"] == "both/join"}
    rows = {"left/map 0", "left/map 1"} if itself else {"left/map 0", "right/map 0"}
    assert rows < into
    assert {name for name in into - rows if "consolidate both." in name} == into - rows
    (component,) = [c for c in plan["graph"]["components"] if "both/join" in c["operators"]]
    assert component["operators"] == ["both/join", "both/map 0", "both/compute user"]
    assert component["partitioned_by"] == ["user"]
    assert "join on user" in str(Explanation("joined.py", plan["streams"], plan["graph"]))


def test_another_arrangement_is_another_fusion_of_the_same_graph(app, compiled):
    before = StreamGraph(compiled, "trips")
    (coarse,) = [c.key_set for c in before.computes if c.name == "trips/compute area"]
    (whole,) = [c.key_set for c in before.computes if c.name == "trips/compute all rows"]
    moved = Arrangement(frozenset({(coarse.name, coarse.name), (whole.name, whole.name)}), frozenset({coarse.name}))
    after = StreamGraph(compiled_as(app, moved), "trips")
    assert set(after.graph.operators) == set(before.graph.operators)
    assert set(after.graph.edges) == set(before.graph.edges)
    assert len(fused_as_run(after)) > len(fused_as_run(before))
    (alone,) = [component for component in fused_as_run(after) if "trips/compute area" in component]
    assert len(alone) == 1
    definition = app._definitions()[0]
    shown = explain("taxis", [(definition, after.compiled)], dict.fromkeys(after.compiled.queries, "memory"), {})
    (operator,) = [o for o in shown.graph["operators"] if o["name"] == "trips/compute area"]
    assert (operator["form"], operator["from_partials_of"]) == ("direct", None)


def test_the_tree_shows_components_operators_and_chains(plan):
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(tree("taxis.py", plan))
    shown = console.export_text()
    for text in (
        "stream trips: memory",
        "C1  on the executors, in any partitioning",
        "map rows as they come: event time, area, user, fare, hour",
        "C4  on the executors, by hour",
        "compute all rows in panes of 5 minutes: count(*) from the partials by area, user in C2",
        "compute area, user in panes of 1 minute: count(*)",
        "compute area in panes of 5 minutes:",
        "in panes of 5 minutes: mean_sum(fare) from the partials by area, user\n",
        "compute area where fare > 9",
        "consolidate coarse: 5 minutes; fare = avg(fare) within 2 seconds →",
        "(fine.results)",
        "stream fine.results: results of fine",
        "6 queries, ",
    ):
        assert text in shown, shown
    assert json.loads(json.dumps(plan)) == plan


def work_of(spark, tmp_path, monkeypatch, queries):
    """Return how often the primitives of an aggregate and Java are asked while so many queries are explained."""
    from py4j.clientserver import JavaClient

    app = App(spark, tmp_path / "checkpoint")
    trips = app.stream(memory(SCHEMA), event_time="at", name="trips")
    for number in range(queries):
        keys = [[], ["user"], ["area"], ["user", "area"]][number % 4]
        rows = trips.where(f"fare > {number % 3}").group_by(*keys) if keys else trips
        rows.window(f"{number % 7 + 1} minutes").agg(n=tm.count(), fare=tm.avg("fare")).to(MemorySink(), f"q{number}")
    asked, primitives, send = {"aggregates": 0, "java": 0}, Mean.primitives, JavaClient.send_command

    def counted(aggregate):
        asked["aggregates"] += 1
        return primitives.fget(aggregate)

    def sent(client, command, *arguments, **options):
        asked["java"] += not command.startswith("m\n")  # which lets go of objects, whenever Python finds time for it
        return send(client, command, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Mean, "primitives", property(counted))
        patch.setattr(JavaClient, "send_command", sent)
        app.explain().to_dict()
    return asked


def test_explaining_is_linear_in_the_queries(spark, tmp_path, monkeypatch):
    """Java is asked for key sets, not for queries; nothing is asked of a query for each other one."""
    few, many = (work_of(spark, tmp_path, monkeypatch, queries) for queries in (84, 336))
    assert many["aggregates"] <= 4.5 * few["aggregates"]
    assert many["aggregates"] <= 40 * 336
    assert many["java"] <= 1.1 * few["java"]


@pytest.mark.parametrize(
    ("planning", "said"),
    [
        ({"plan": "off", "max_executors": None}, None),
        ({"plan": "auto", "max_executors": None}, "plans its settings while it runs"),
        (
            {"plan": "made.json", "max_executors": 8},
            "plans its settings while it runs, beginning with the profile made.json; up to 8 executors, as limits "
            "need them",
        ),
    ],
)
def test_what_an_application_plans_for_itself_is_shown(planning, said):
    shown = str(Explanation("taxis", [], {"operators": [], "edges": [], "components": []}, planning)).splitlines()
    lines = [line.strip("├─└ ") for line in shown if "plans its settings" in line]
    assert lines == ([] if said is None else [said])


def test_names_do_not_reach_the_terminal_as_commands():
    assert plain_json({"a\x1b[2J": ["b\x07", 1, None]}) == {"a\\x1b[2J": ["b\\x07", 1, None]}
