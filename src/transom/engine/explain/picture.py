"""An explanation as a tree, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text
from rich.tree import Tree

from transom.settings import OFF
from transom.sinks.printing import plain_json, plain_text
from transom.windows.splitting import Form

_STYLES = {"map": "blue", "compute": "magenta", "consolidate": "green", "join": "yellow"}
_HEAD = "bold cyan"
_DIM = "dim"
Plan = Mapping[str, Any]


def tree(title: str, plan: Plan) -> Tree:
    """Return what `App.explain` tells, for people: under each stream its components, in them their operators."""
    root, plan = Tree(Text(plain_text(title), style=_HEAD)), plain_json(plan)
    operators = {operator["name"]: operator for operator in plan["graph"]["operators"]}
    names = {name: component["name"] for component in plan["graph"]["components"] for name in component["operators"]}
    feeds = _feeds(plan, operators, names)
    if planning := _planning(plan["planning"]):
        root.add(planning)
    for stream in plan["streams"]:
        other = stream["shares_source_with"]
        apart: list[str | tuple[str, str]] = [("; read apart from ", _DIM), other] if other else []
        head = ("stream ", _HEAD), (stream["name"], "bold"), f": {stream['source']}"
        branch = root.add(Text.assemble(*head, *apart))
        branch.add(
            Text.assemble(
                ("event time ", _DIM), stream["event_time"], ("; watermark ", _DIM), stream["watermark"],
                ("; one scan per micro-batch", _DIM), (_tier(stream) + _lane(stream), _DIM),
            )
        )  # fmt: skip
        queries = {query["name"]: query for query in stream["queries"]}
        for component in plan["graph"]["components"]:
            if component["stream"] == stream["name"]:
                leaf = branch.add(_component(component))
                for name in component["operators"]:
                    leaf.add(_operator(operators[name], queries, operators, names, feeds.get(name, ())))
    root.add(Text(_summary(plan), style=_DIM))
    return root


def _planning(planning: Plan) -> Text | None:
    """Say what the application plans for itself, if it does."""
    if planning.get("plan", OFF) == OFF:
        return None
    begins = "" if planning["plan"] == "auto" else f", beginning with the profile {planning['plan']}"
    most = planning["max_executors"]
    asks = "" if most is None else f"; up to {most:,} executors, as limits need them"
    return Text.assemble(("plans its settings while it runs", _DIM), (begins + asks, _DIM))


def _tier(stream: Plan) -> str:
    """Say where partials are, if that is not left to their size."""
    tiers = {component["tier"] for component in stream["components"]}
    return "; partials on the executors" if "cluster" in tiers else ""


def _lane(stream: Plan) -> str:
    """Say how partials are made, if that is not settled by the settings."""
    if stream["lane"] == "native":
        return "; partials without Spark SQL"
    return f"; partials by Spark SQL: {stream['lane_why']}" if stream["lane_why"] else ""


def _feeds(plan: Plan, operators: Plan, names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return by operator the components of other streams that its results flow into."""
    feeds: dict[str, list[str]] = {}
    for edge in plan["graph"]["edges"]:
        if operators[edge["from"]]["stream"] != operators[edge["to"]]["stream"]:
            feeds.setdefault(edge["from"], []).append(f"{names[edge['to']]} ({operators[edge['to']]['stream']})")
    return feeds


def _component(component: Plan) -> Text:
    by = component["partitioned_by"]
    where = "on the driver" if component["runs_on"] == "driver" else "on the executors"
    parts = "in any partitioning" if by == "all" else f"by {', '.join(by)}" if by else "one partition"
    return Text.assemble((component["name"], _HEAD), f"  {where}, {parts}")


def _operator(operator: Plan, queries: Plan, operators: Plan, names: Mapping[str, str], feeds: Sequence[str]) -> Text:
    kind = operator["kind"]
    head = (f"{kind} ", _STYLES[kind])
    if kind == "map":
        through = " then ".join(operator["functions"]) or "rows as they come"
        return Text.assemble(head, through, (": ", _DIM), (", ".join(operator["output"]), _DIM))
    if kind == "compute":
        return Text.assemble(head, *_compute(operator, operators, names))
    if kind == "consolidate":
        return Text.assemble(head, *_consolidate(queries[operator["query"]], feeds))
    return Text.assemble(head, "on ", (", ".join(operator["partitioned_by"]), "bold"))


def _compute(operator: Plan, operators: Plan, names: Mapping[str, str]) -> list[str | tuple[str, str]]:
    by = ", ".join(operator["partitioned_by"]) or "all rows"
    panes = ", ".join(
        pane["every"] + (f" offset {pane['offset']}" if pane.get("offset", "0 seconds")[0] != "0" else "")
        for pane in operator["panes"]
    )
    text: list[str | tuple[str, str]] = [(by, "bold")]
    if operator["where"]:
        text += [(" where ", _DIM), operator["where"]]
    if panes:
        text += [(" in panes of ", _DIM), panes]
    elif operator["form"] == Form.DIRECT.value:
        text += [" window by window"]
    text += [(": ", _DIM), ", ".join(operator["partials"])]
    source = operator["from_partials_of"]
    if source is not None:
        finer = ", ".join(operators[source]["partitioned_by"])
        elsewhere = f" in {names[source]}" if names[source] != names[operator["name"]] else ""
        text += [(" from the partials by ", _DIM), f"{finer}{elsewhere}"]
    return text


def _consolidate(query: Plan, feeds: Sequence[str]) -> list[str | tuple[str, str]]:
    text: list[str | tuple[str, str]] = [(query["name"], "bold"), ": "]
    if query["rows"]:
        text += ["the rows themselves", *([(" in windows of ", _DIM)] if query["windows"] else [])]
    text += [", ".join(query["windows"])]
    values = ", ".join(
        column if column == call else f"{column} = {call}" for column, call in query["aggregates"].items()
    )
    text += [("; ", _DIM), values] if values else []
    if query["fill"] is not None:
        text += [(" filled with ", _DIM), query["fill"]]
    for step in query["results"]:
        word, _, rest = step.partition(" ")
        text += [(f" {word} ", _DIM), rest]
    if query["within"] is not None:
        text += [(" within ", _DIM), query["within"]["limit"]]
        if "keep" in query["within"]:
            text += [(" leaving out up to ", _DIM), f"{1 - query['within']['keep']:.0%}"]
    if query["early"] is not None:
        text += [(" early every ", _DIM), query["early"]]
    if query["lateness"] is not None:
        text += [(" corrected for ", _DIM), query["lateness"]]
    text += [(" → ", _DIM), query["sink"]]
    if feeds:
        text += [(" → ", _DIM), ", ".join(feeds)]
    return text


def _summary(plan: Plan) -> str:
    components = [component for stream in plan["streams"] for component in stream["components"]]
    queries = sum(len(stream["queries"]) for stream in plan["streams"])
    wanted = sum(component["shared"]["aggregates_of_queries"] for component in components)
    computed = sum(component["shared"]["partials_computed"] for component in components)
    return (
        f"{_count(queries, 'query', 'queries')}, {_count(len(components), 'aggregation')} per micro-batch, "
        f"{_count(computed, 'partial aggregate')} computed, {wanted} named by the queries"
    )


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
