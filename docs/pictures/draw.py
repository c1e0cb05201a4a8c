"""Draw the pictures of the documentation as SVG, without anything that must be installed.

python docs/pictures/draw.py

The figure of the README is drawn from what runs of the benchmarks wrote:

python -m benchmarks.catchup --quick --out docs/pictures/catchup.json
python -m benchmarks.paced --quick --out docs/pictures/paced.json
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

HERE = Path(__file__).resolve().parent
INK, FAINT, PAPER = "#24343d", "#8a989f", "#ffffff"
OURS, OTHERS, WARM, PALE = "#2563a8", "#b9a58a", "#c2571a", "#dbe7f3"
FONT = "font-family='Helvetica, Arial, sans-serif'"
COLOURS = {"transom": OURS, "flink": WARM, "stock": OTHERS}
STOCK = "stock Spark Structured Streaming, best of several settings"
Values: TypeAlias = "Mapping[str, Sequence[float | None]]"
"""A number for each number of queries by engine; None where it was not measured."""
Shown: TypeAlias = "Callable[[float], str]"


class Picture:
    """An SVG that grows by shapes; lengths in pixels from the upper left corner."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.shapes = [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
            f"role='img' {FONT}><title>{title}</title><rect width='{width}' height='{height}' fill='{PAPER}' rx='6'/>"
        ]

    def text(self, x: float, y: float, text: str, size: int = 13, anchor: str = "start", fill: str = INK) -> None:
        """Write a line of text; y is its base line."""
        self.shapes.append(
            f"<text x='{x:g}' y='{y:g}' font-size='{size}' text-anchor='{anchor}' fill='{fill}'>{text}</text>"
        )

    def box(self, x: float, y: float, width: float, height: float, fill: str = PALE, edge: str = "none") -> None:
        """Draw a rectangle."""
        self.shapes.append(
            f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' fill='{fill}' stroke='{edge}' rx='2'/>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str = FAINT, dash: str = "none") -> None:
        """Draw a line."""
        self.shapes.append(
            f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{stroke}' stroke-width='1.5' "
            f"stroke-dasharray='{dash}'/>"
        )

    def dot(self, x: float, y: float, fill: str = INK) -> None:
        """Draw a row of the stream."""
        self.shapes.append(f"<circle cx='{x:g}' cy='{y:g}' r='5' fill='{fill}'/>")

    def arrow(self, x1: float, y1: float, x2: float, y2: float, stroke: str = INK) -> None:
        """Draw an arrow to the right or downwards."""
        self.line(x1, y1, x2, y2, stroke)
        head = (
            f"{x2},{y2} {x2 - 7},{y2 - 4} {x2 - 7},{y2 + 4}"
            if x2 > x1
            else f"{x2},{y2} {x2 - 4},{y2 - 7} {x2 + 4},{y2 - 7}"
        )
        self.shapes.append(f"<polygon points='{head}' fill='{stroke}'/>")

    def save(self, name: str) -> None:
        """Write the file beside this one."""
        (HERE / f"{name}.svg").write_text("\n".join([*self.shapes, "</svg>", ""]), encoding="utf-8")


def windows() -> None:
    """The kinds of windows over one line of rows."""
    picture = Picture(760, 330, "Tumbling, sliding and session windows over the same rows")
    left, minute = 120, 60
    rows = [0.3, 0.8, 1.2, 2.6, 3.1, 3.3, 6.2, 6.6, 7.4, 9.5]

    def span(first: float, last: float, y: float, fill: str = PALE) -> None:
        picture.box(left + first * minute + 1, y, (last - first) * minute - 2, 20, fill, OURS)

    for row in rows:
        picture.dot(left + row * minute, 30)
        picture.line(left + row * minute, 38, left + row * minute, 290, "#e3e7ea")
    picture.text(10, 34, "rows of a key")
    picture.text(10, 76, "5 minutes")
    for start in (0, 5):
        span(start, start + 5, 62)
    picture.text(10, 108, "5 minutes,")
    picture.text(10, 124, "every 2")
    for number, start in enumerate((0, 2, 4)):
        span(start, start + 5, 98 + 26 * number)
    picture.text(10, 208, "session,")
    picture.text(10, 224, "gap 2 minutes")
    for first, last in ((0.3, 5.3), (6.2, 9.4), (9.5, 10.5)):
        span(first, last, 200)
    picture.text(left + 9.5 * minute + 62, 215, "...", 13)
    picture.line(left, 270, left + 10.4 * minute, 270, INK)
    for tick in range(11):
        picture.line(left + tick * minute, 266, left + tick * minute, 274, INK)
        picture.text(left + tick * minute, 292, f"12:{tick:02}", 11, "middle", FAINT)
    picture.text(
        left, 318, "Each row is in one window of 5 minutes, in two or three that slide, and in one session.", 13
    )
    picture.save("windows")


def lateness() -> None:
    """How the watermark follows the rows, and which rows are late."""
    picture = Picture(760, 400, "The watermark stays 30 seconds behind the newest event time")
    left, top, step, scale = 90, 30, 58, 0.95
    seconds = [10, 25, 50, 40, 75, 95, 70, 55, 110, 130]
    height = 150 * scale

    def y(second: float) -> float:
        return top + (150 - second) * scale * 2

    picture.line(left, top, left, top + height * 2, INK)
    picture.line(left, top + height * 2, left + 610, top + height * 2, INK)
    for second in (0, 60, 120):
        picture.line(left, y(second), left + 610, y(second), "#d5dbdf")
        picture.text(left - 8, y(second) + 4, f"12:{second // 60:02}:00", 11, "end", FAINT)
    picture.text(left - 80, 22, "event time", 12, fill=FAINT)
    picture.text(left + 610, top + height * 2 + 22, "order of arrival", 12, "end", FAINT)
    newest, before = 0, None
    for number, second in enumerate(seconds):
        late = number == 7
        x = left + 30 + number * step
        newest = max(newest, second)
        now = max(0, newest - 30)
        if before is not None:
            picture.line(x - step, y(before), x, y(before), WARM)
            picture.line(x, y(before), x, y(now), WARM)
        before = now
        picture.dot(x, y(second), WARM if late else OURS)
        if late:
            picture.text(x + 9, y(second) + 18, "late for 12:00 to 12:01", 12, fill=WARM)
    picture.text(left + 30 + 9 * step + 8, y(100) + 14, "watermark", 12, fill=WARM)
    picture.text(left + 30 + 5 * step - 60, y(62) - 14, "window 12:00 closes", 12, "end", INK)
    picture.arrow(left + 30 + 5 * step - 56, y(62) - 18, left + 30 + 5 * step - 4, y(62) - 18)
    picture.text(
        left, 380, "A window closes when the watermark reaches its end. A row that comes after that is late.", 13
    )
    picture.save("lateness")


def path() -> None:
    """The way of a record."""
    picture = Picture(760, 250, "A record goes from the source through one Spark job into windows and to sinks")
    boxes = [
        (10, "source", "files, generator"),
        (165, "one Spark job", "read, map, partials"),
        (320, "driver", "merge partials"),
        (475, "windows", "close at the watermark"),
        (630, "sinks", "Parquet, SQLite, ..."),
    ]
    for number, (x, name, what) in enumerate(boxes):
        picture.box(x, 50, 120, 64, PALE, OURS)
        picture.text(x + 60, 76, name, 14, "middle")
        picture.text(x + 60, 98, what, 10, "middle", FAINT)
        if number:
            picture.arrow(x - 35, 82, x - 3, 82)
    picture.box(165, 180, 430, 44, "#f4f1ec", OTHERS)
    picture.text(380, 207, "checkpoint: log of cuts, partials, snapshots", 13, "middle")
    for x in (225, 380, 535):
        picture.arrow(x, 116, x, 178, FAINT)
    picture.box(10, 180, 130, 44, "#f4f1ec", OTHERS)
    picture.text(75, 207, "dead letters", 13, "middle")
    picture.line(195, 116, 150, 160, FAINT)
    picture.arrow(75, 160, 75, 178, FAINT)
    picture.line(150, 160, 75, 160, FAINT)
    picture.text(10, 30, "A record is read and parsed once, whatever the number of queries.", 13)
    picture.save("path")


def phases() -> None:
    """The phases of a latency: the width of each is made up."""
    picture = Picture(760, 262, "Twelve phases from the arrival of a row to the visible result of its window")
    waits, job, driver = "#f4f1ec", PALE, "#e3ecd9"
    known = [
        ("look", 52, waits), ("turn", 84, waits), ("slot", 52, waits), ("plan", 56, job), ("launch", 50, job),
        ("map", 92, job), ("exchange", 66, job), ("collect", 54, job), ("commit", 56, driver), ("close", 44, driver),
        ("consolidate", 76, driver), ("deliver", 54, waits),
    ]  # fmt: skip
    x, begins = 12.0, {}
    for name, width, fill in known:
        begins[name] = x
        picture.box(x, 92, width, 42, fill, OTHERS if fill != job else OURS)
        picture.text(x + width / 2, 117, name, 11, "middle")
        x += width
    groups = [
        ("look", "plan", "waits before the cut", "looks, own cut, trigger, other jobs"),
        ("plan", "commit", "one Spark job", "tasks share the cores: map and exchange"),
        ("commit", "deliver", "the loop's thread", "all streams share it"),
    ]
    for first, last, what, more in groups:
        left, right = begins[first] + 3, begins[last] - 3
        picture.line(left, 146, right, 146, INK)
        picture.text((left + right) / 2, 164, what, 12, "middle")
        picture.text((left + right) / 2, 180, more, 10, "middle", FAINT)
    picture.text(begins["deliver"] + 27, 164, "sink", 12, "middle")
    for at, upper, lower in (
        (12, "a row", "arrives"),
        (begins["close"], "it is", "committed"),
        (x, "the result", "is visible"),
    ):
        picture.arrow(at, 66, at, 90)
        picture.text(min(at, 745), 46, upper, 12, "start" if at < 20 else "end" if at > 700 else "middle")
        picture.text(min(at, 745), 61, lower, 12, "start" if at < 20 else "end" if at > 700 else "middle")
    picture.text(12, 24, "What a limit counts: all of them, for the row that completes a window.", 13)
    picture.line(begins["turn"], 212, begins["close"], 212, WARM, "5,3")
    picture.text(
        begins["turn"] + 4,
        230,
        "the next cut of the stream takes what has come meanwhile: rows, length and wait",
        11,
        fill=WARM,
    )
    picture.text(begins["turn"] + 4, 245, "determine each other", 11, fill=WARM)
    picture.save("phases")


def panes() -> None:
    """Windows of three queries, cut into panes."""
    picture = Picture(760, 250, "Windows of three queries are merged from the same panes")
    left, minute = 150, 36
    for row, (name, length, every) in enumerate(
        (("1 minute", 1, 1), ("5 minutes", 5, 5), ("10 minutes, every 5", 10, 5))
    ):
        y = 40 + row * 40
        picture.text(10, y + 15, name)
        for number, start in enumerate(range(0, 16 - length, every)):
            lift = 10 * (number % 2) if every < length else 0
            picture.box(left + start * minute + 1, y + lift, length * minute - 2, 20, PALE, OURS)
    picture.text(10, 203, "panes")
    for start in range(15):
        picture.box(left + start * minute + 1, 188, minute - 2, 22, "#f2dfd1", WARM)
    picture.text(
        left, 236, "Each row is added to one pane. A window is the merge of its panes, or of shorter windows.", 13
    )
    picture.text(10, 24, "Three queries, one set of partial aggregates", 14)
    picture.save("panes")


def figure() -> None:
    """Catch-up and latency, as runs of the benchmarks found them."""
    catchup, paced = (found(name) for name in ("catchup", "paced"))
    rates = {
        "transom": each(catchup, "q{}.rows_per_s"),
        "flink": each(catchup, "q{}.flink_rows_per_s"),
        "stock": each(catchup, "q{}.stock_rows_per_s"),
    }
    seconds = {"transom": each(paced, "q{}.p95_s"), "stock": each(paced, "stock.q{}.p95_s")}
    picture = Picture(760, 318, "Transom, Flink SQL and stock Spark with 1, 4 and 16 queries")
    chart(picture, 20, "Catching up: thousand rows per second", rates, lambda x: f"{float(f'{x:.3g}') / 1000:,g}")
    chart(picture, 400, "Latency of results, 95th percentile: seconds", seconds, lambda x: f"{x:.2g}")
    legend = (20, "transom", "Transom"), (104, "flink", "Flink SQL (catching up only)"), (300, "stock", STOCK)
    for x, engine, words in legend:
        picture.box(x, 272, 12, 12, COLOURS[engine])
        picture.text(x + 18, 283, words, 12)
    began = catchup["began"].partition(" ")[0]
    spark = catchup["versions"]["pyspark"]
    words = f"{began}, {catchup['processors']} processors, 2 threads for each engine, Spark {spark}"
    if any((run["load_before"] or 0) > 1 for run in (catchup, paced)):
        words += "; other programs ran at the same time"
    picture.text(20, 306, words, 11, fill=FAINT)
    picture.save("figure")


def found(name: str) -> Any:
    """Return what `python -m benchmarks.NAME --out docs/pictures/NAME.json` wrote; its results were equal."""
    result = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    assert result["equal"], f"the results of {name} differed"
    return result


def each(result: Any, figure: str) -> list[float | None]:
    """Return a figure for each number of queries."""
    return [result["figures"].get(figure.format(queries)) for queries in (1, 4, 16)]


def chart(picture: Picture, left: float, title: str, values: Values, shown: Shown) -> None:
    """Draw a bar of each engine for each number of queries; one that was not measured is said to be so."""
    picture.text(left, 26, title, 14)
    most = max(value for each in values.values() for value in each if value is not None)
    base, height, width = 232, 170, 78 / len(values) - 3
    picture.line(left, base, left + 330, base, INK)
    for place, queries in enumerate((1, 4, 16)):
        x = left + 20 + place * 108
        for side, name in enumerate(values):
            value, at = values[name][place], x + side * (width + 3)
            if value is None:
                picture.text(at + width / 2, base - 6, "–", 11, "middle", FAINT)
                continue
            tall = max(1.5, value / most * height)
            picture.box(at, base - tall, width, tall, COLOURS[name])
            picture.text(at + width / 2, base - tall - 5, shown(value), 11, "middle")
        picture.text(x + 39, base + 18, f"{queries} {'query' if queries == 1 else 'queries'}", 12, "middle", FAINT)


if __name__ == "__main__":
    for draw in (windows, lateness, path, phases, panes, figure):
        draw()
