"""Figures as SVG: lines with markers, distributions, grouped bars, time series; the same data gives the same bytes.

What a figure shows is a value (`Figure`, `Panel`, `Series`) that needs no matplotlib; only `draw` does.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np


class Form(Enum):
    """How the series of a panel are drawn."""

    LINES = "lines"
    """A marker per point, joined; whiskers for intervals."""
    CDF = "cdf"
    """Values against the share of them that are not larger, percent; `Series.y` holds the values."""
    BARS = "bars"
    """One group of bars per entry of `Panel.groups`, one bar per series."""
    TIMES = "times"
    """Lines without markers."""


@dataclass(frozen=True)
class Series:
    """Data of one name, which has the same colour in every figure.

    Raises:
        ValueError: The lengths differ.
    """

    name: str
    x: Sequence[float]
    """Empty for `Form.CDF` and `Form.BARS`."""
    y: Sequence[float]
    half: Sequence[float] = ()
    """Half widths of the 95 % intervals around `y`; empty without intervals."""

    def __post_init__(self) -> None:
        if (len(self.x) and len(self.x) != len(self.y)) or (len(self.half) and len(self.half) != len(self.y)):
            raise ValueError(f"{self.name}: {len(self.x)} x, {len(self.y)} y and {len(self.half)} intervals.")


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Raises:
        ValueError: There is nothing to show, or bars that belong to no group.
    """

    form: Form
    title: str
    x_label: str
    """With the unit."""
    y_label: str
    series: tuple[Series, ...]
    groups: tuple[str, ...] = ()
    levels: Mapping[str, float] | None = None
    """Horizontal lines for comparison, by what they mean in a word or two."""
    x_log: bool = False
    y_log: bool = False
    y_top: float | None = None

    def __post_init__(self) -> None:
        if not self.series:
            raise ValueError(f"{self.title}: there is no series.")
        if self.form is Form.BARS and any(len(one.y) != len(self.groups) for one in self.series):
            raise ValueError(f"{self.title}: a bar for each of {len(self.groups)} groups is needed.")


@dataclass(frozen=True)
class Figure:
    """A file with one or more panels and one legend."""

    name: str
    """Of the file, without `.svg`."""
    title: str
    text: str
    """What it shows, for those who cannot see it, and under which conditions."""
    panels: tuple[Panel, ...]
    columns: int = 2


@dataclass(frozen=True)
class _Look:
    colour: str
    marker: str
    dashes: tuple[float, ...] = ()
    strong: bool = False

    @property
    def line(self) -> dict[str, Any]:
        return {
            "color": self.colour,
            "linewidth": 2.4 if self.strong else 1.3,
            "zorder": 2.5 if self.strong else 3,  # a thin line on a thick one is seen, the reverse is not
            "linestyle": (0, self.dashes) if self.dashes else "-",
        }


_BLUE, _ORANGE, _GREEN, _PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
_SKY, _VERMILION, _GREY = "#56B4E9", "#D55E00", "#777777"
# The colours of Okabe and Ito, which people with any kind of colour blindness tell apart. One colour per name.
_LOOKS = {
    "klink": _Look(_BLUE, "o", strong=True),
    "fcfs": _Look(_ORANGE, "s"),
    "round_robin": _Look(_GREEN, "^"),
    "highest_rate": _Look(_PURPLE, "D"),
    "streambox": _Look(_SKY, "v", (5, 1.5)),
    "fair": _Look(_VERMILION, "P", (3, 1, 1, 1)),
    "stock": _Look(_GREY, "X", (1.5, 1)),
}
_OURS = ("gated", "transom", "elastic", "lookahead", "instant")
_SAME_AS = {**dict.fromkeys(_OURS, "klink"), "ungated": "stock"}

_STYLE: dict[str, Any] = {
    "svg.hashsalt": "transom",
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud and tested
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
}


def available() -> bool:
    """Tell whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(figure: Figure, directory: Path) -> Path:
    """Write a figure and return its path; the directory is made.

    The bytes depend on nothing but the figure and the version of matplotlib.
    """
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    columns = min(figure.columns, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    looks = _looks([one.name for panel in figure.panels for one in panel.series])
    with matplotlib.rc_context(_STYLE):
        canvas = Canvas(
            figsize=((7.0 if columns == 1 else 3.9 * columns) + 1.3, 2.9 * rows + 0.5), layout="constrained"
        )
        canvas.get_layout_engine().set(w_pad=0.1, h_pad=0.08, wspace=0.02)
        grid = canvas.subplots(rows, columns, squeeze=False)
        for axes in grid.flat[len(figure.panels) :]:
            axes.set_visible(False)
        for panel, axes in zip(figure.panels, grid.flat, strict=False):
            _draw_panel(panel, axes, looks)
        canvas.suptitle(figure.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        _draw_legend(canvas, figure, looks)
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": figure.title})
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{figure.name}.svg"
    path.write_text(_described(buffer.getvalue(), figure.text), encoding="utf-8")
    return path


def _looks(names: Sequence[str]) -> dict[str, _Look]:
    """Return the look of each name; names that are no policy take the colours that are left, in order."""
    same = {name: _LOOKS[policy] for name, policy in _SAME_AS.items()}
    unknown = [name for name in dict.fromkeys(names) if name not in {**_LOOKS, **same}]
    used = {_SAME_AS.get(name, name) for name in names}
    left = [replace(look, strong=False) for name, look in _LOOKS.items() if name not in used] or list(_LOOKS.values())
    return {**_LOOKS, **same, **{name: left[place % len(left)] for place, name in enumerate(unknown)}}


def _described(svg: str, text: str) -> str:
    """Say in the SVG itself what it shows: `desc` is read by screen readers, after the title."""
    svg = svg.replace("</title>", f"</title>\n <desc>{escape(text)}</desc>", 1)
    return svg.replace("<svg ", '<svg role="img" ', 1)


def _draw_panel(panel: Panel, axes: Any, looks: Mapping[str, _Look]) -> None:
    _DRAWN[panel.form](panel, axes, looks)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    for name, level in (panel.levels or {}).items():
        axes.axhline(level, color="#777777", linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
        where = axes.get_yaxis_transform()
        axes.text(1.01, level, name, transform=where, ha="left", va="center", fontsize=7.5, color="#555555")
    if panel.x_log:
        axes.set_xscale("log")
        _label_decades(axes.xaxis)
    if panel.y_log:
        axes.set_yscale("log")
        _label_decades(axes.yaxis)
    else:
        axes.set_ylim(_bottom(panel), 101 if panel.form is Form.CDF else panel.y_top)
    axes.tick_params(length=2.5)


def _bottom(panel: Panel) -> float:
    """Return where the axis begins: at 0, or below the lowest interval."""
    if panel.form is Form.CDF:
        return 0.0
    lowest = min(float(np.min(np.asarray(one.y) - np.asarray(one.half or 0.0))) for one in panel.series)
    return min(0.0, 1.1 * lowest)


def _label_decades(axis: Any) -> None:
    """Label each decade as a plain number; 2 and 5 as well where there are few decades."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 300 * low else (1.0,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _draw_lines(panel: Panel, axes: Any, looks: Mapping[str, _Look]) -> None:
    for one in panel.series:
        look = looks[one.name]
        half = list(one.half) or None
        style = {**look.line, "marker": look.marker, "markersize": 5.5 if look.strong else 4.5}
        axes.errorbar(one.x, one.y, yerr=half, capsize=2, elinewidth=0.9, markeredgewidth=0, **style)


def _draw_times(panel: Panel, axes: Any, looks: Mapping[str, _Look]) -> None:
    for one in panel.series:
        look = looks[one.name]
        axes.plot(one.x, one.y, **{**look.line, "linestyle": "-", "linewidth": 1.5 if look.strong else 1.0})
    axes.margins(x=0)


def _draw_cdf(panel: Panel, axes: Any, looks: Mapping[str, _Look]) -> None:
    shares = np.concatenate([np.linspace(0, 0.99, 199), np.linspace(0.9905, 1, 20)])
    lowest = np.inf
    for one in panel.series:
        values = np.quantile(np.asarray(one.y, dtype=np.float64), shares, method="inverted_cdf")
        lowest = min(lowest, values[1])
        axes.plot(values, 100 * shares, **looks[one.name].line)
    if panel.x_log:
        axes.set_xlim(left=lowest)  # one result that came at once must not take up a decade


def _draw_bars(panel: Panel, axes: Any, looks: Mapping[str, _Look]) -> None:
    width = 0.8 / len(panel.series)
    places = np.arange(len(panel.groups))
    for number, one in enumerate(panel.series):
        look = looks[one.name]
        at = places + (number - (len(panel.series) - 1) / 2) * width
        half = list(one.half) or None
        whiskers = {"elinewidth": 0.9, "capsize": 1.5, "ecolor": "#333333"}
        axes.bar(at, one.y, 0.92 * width, yerr=half, color=look.colour, error_kw=whiskers, zorder=3)
    axes.set_xticks(places, panel.groups)
    axes.tick_params(axis="x", bottom=False)


def _draw_legend(canvas: Any, figure: Figure, looks: Mapping[str, _Look]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    forms: dict[str, set[Form]] = {}
    for panel in figure.panels:
        for one in panel.series:
            forms.setdefault(one.name, set()).add(panel.form)
    handles: list[Any] = []
    for name, used in forms.items():
        look = looks[name]
        if used == {Form.BARS}:
            handles.append(Patch(color=look.colour, label=name))
            continue
        marker = look.marker if Form.LINES in used else "None"
        style = {**look.line, "linestyle": "-"} if used == {Form.TIMES} else look.line
        handles.append(Line2D([], [], marker=marker, markersize=4.5, markeredgewidth=0, label=name, **style))
    canvas.legend(handles=handles, loc="outside right upper", handlelength=2.2)


_DRAWN: dict[Form, Callable[[Panel, Any, Mapping[str, _Look]], None]] = {
    Form.LINES: _draw_lines,
    Form.CDF: _draw_cdf,
    Form.BARS: _draw_bars,
    Form.TIMES: _draw_times,
}
