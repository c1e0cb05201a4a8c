"""Figures of sites on thin links: processing times by query (Fig. 5 of the paper), and a map of the ways of queries."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from benchmarks.harness import Run
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.wide_table import Drawing


def draw_table(run: Run, drawing: Drawing, took: dict[str, dict[str, list[float]]]) -> None:
    """Draw mean and 95th percentile of the processing times of each query, and the map; if figures are wanted."""
    if run.plots is None:
        return
    names = tuple(took["direct"])
    named = {"direct": "direct paths", "equal": "plan"}
    mean, p95 = (
        tuple(Series(named[form], (), [measure(took[form][name]) for name in names]) for form in named)
        for measure in (lambda each: float(np.mean(each)), lambda each: float(np.quantile(each, 0.95)))
    )
    label = "processing time, s"
    panels = (
        Panel(Form.BARS, "mean", "query", label, mean, names),
        Panel(Form.BARS, "95th percentile", "query", label, p95, names),
    )
    text = "Processing time of an interval of each query, on direct paths and on those of the plan, at equal intervals."
    run.draw(Figure("wide_area_table", "Queries over sites on thin links", text, panels, columns=1))
    run.say(f"figure: {draw_map(drawing, run.plots)}")


def draw_map(drawing: Drawing, directory: Path) -> Path:
    """Draw for each query its sources, destination and relay, on links as wide as they are; return the path."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    problem = drawing.problem
    names, widest = problem.topology.sites, max(problem.topology.links.values())
    angles = {name: 2 * np.pi * place / len(names) for place, name in enumerate(names)}
    at = {name: np.array([np.sin(angle), np.cos(angle)]) for name, angle in angles.items()}
    routes, columns = drawing.forms["plan"].routes, 5
    rows = -(-len(routes) // columns)
    with matplotlib.rc_context({"svg.hashsalt": "transom", "svg.fonttype": "none", "font.size": 8}):
        canvas = Canvas(figsize=(2.0 * columns, 2.0 * rows), layout="constrained")
        for axes, route in zip(canvas.subplots(rows, columns, squeeze=False).flat, routes, strict=False):
            for (here, there), rate in problem.topology.links.items():
                ends = np.array([at[here], at[there]]).T
                axes.plot(*ends, color="#dddddd", linewidth=1.5 * rate / widest, zorder=1)
            for source, parent in route.tree.parents:
                colour = "#0072B2" if parent == route.tree.destination else "#D55E00"
                style = {"arrowstyle": "->", "color": colour, "linewidth": 1.4, "shrinkA": 7, "shrinkB": 7}
                axes.annotate("", at[parent], at[source], arrowprops=style, zorder=2)
            for name in names:
                face = "#009E73" if name == route.tree.destination else "white"
                axes.scatter(*at[name], s=110, facecolor=face, edgecolor="#777777", zorder=3)
                axes.text(*at[name], name, ha="center", va="center", zorder=4)
            axes.set_title(f"{route.flow}, every {route.interval} ticks")
            axes.set_axis_off()
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": "Ways of queries"})
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "wide_area_map.svg"
    path.write_text(buffer.getvalue(), encoding="utf-8")
    return path
