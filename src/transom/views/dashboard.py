"""The pictures of a run: a picture for a terminal, log lines for files, JSON for programs.

Pure: a `Progress` in, something to print out. `transom.views.terminal` decides when to print.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from transom.engine.loop.progress import Progress, QueryProgress, StreamProgress
from transom.model.time import (
    MAX_TIME,
    MICROS_PER_SECOND,
    MIN_TIME,
    Micros,
    format_duration,
    format_time,
)
from transom.sinks.printing import plain_text

CATCHING_UP_SHOWN = 3
"""Streams whose catching up is told; of more only the number is."""
WIDE = 100
"""Characters from which on a terminal has room for all columns."""
HOMES_SHOWN = 6
"""Executors whose key groups are counted; of more only the number is told."""


def to_json(progress: Progress) -> dict[str, Any]:
    """Return the progress as JSON holds it; times in microseconds, null where there is none yet."""
    values = asdict(progress)
    for stream in values["streams"]:
        for key in ("watermark", "max_event_time"):
            if not MIN_TIME < stream[key] < MAX_TIME:
                stream[key] = None
    for query in values["queries"]:
        if query["complete_from"] <= MIN_TIME:
            query["complete_from"] = None
    return values


def notes(progress: Progress) -> list[str]:
    """Return a log line for each note."""
    return [f"{format_time(_second(progress.at))} note: {plain_text(note)}" for note in progress.notes]


def log_lines(progress: Progress) -> list[str]:
    """Return log lines: the notes, then one line per stream and one per query."""
    at = format_time(_second(progress.at))
    lines = notes(progress)
    if progress.memory_mode:
        lines.append(f"{at} memory {progress.memory:.0%}: what frees it goes first")
    if said := _executors(progress):
        lines.append(f"{at} {said}")
    for stream in progress.streams:
        dead = sum(stream.dead_letters.values())
        lines.append(
            f"{at} stream {stream.name}: {_counted(stream.rows, 'row')}, {stream.rows_per_second:,.0f} rows/s, "
            f"{_backlog(stream, progress.at)}, "
            f"watermark {_moment(stream.watermark)}{_lag(stream)}, "
            f"{_counted(stream.cuts, 'micro-batch')}, last {_seconds(stream.batch_micros)}"
            + (f", {_counted(dead, 'dead letter')}" if dead else "")
            + (f", {_left_out(stream)}" if stream.shed_share else "")
            + (f", {_plan(stream)}" if stream.planned is not None else "")
            + (f", {_groups(stream)}" if stream.key_groups else "")
        )
    behind = {stream.name for stream in progress.streams if stream.catching_up}
    for query in progress.queries:
        unknown = "measured once it has caught up" if query.stream in behind else "not known yet"
        quantiles = " ".join(f"{name} {_seconds(value)}" for name, value in sorted(query.latency.items()))
        lines.append(
            f"{at} query {query.name}: {_counted(query.windows, 'window')}, {_counted(query.result_rows, 'result')}, "
            f"latency {quantiles or unknown}"
            + (f" (target {_target(query)})" if query.target else "")
            + (f", {_counted(query.late_rows, 'late row')}" if query.late_rows else "")
            + f", {_state(query)[0]}"
        )
    return [plain_text(line) for line in lines]


def render(
    progress: Progress,
    notes: list[str],
    ended: bool = False,
    words: str = "",
    headline: str = "",
    hint: str = "Ctrl-C stops",
) -> RenderableType:
    """Return the live picture: what happens in words, a table of streams, a table of queries, and the newest notes.

    Args:
        progress: What is shown.
        notes: The newest notes.
        ended: Whether the run is over.
        words: What happens, where the caller knows more than the progress tells.
        headline: The newest result, where the caller shows results.
        hint: How the user stops it.
    """
    ran = format_duration(_second(progress.ran) if progress.ran > 0 else 0)
    head = "finishing the micro-batch, Ctrl-C again stops at once" if progress.stopping else hint
    head = "ended" if ended else head
    title = Text.assemble(("transom", "bold cyan"), f"  {ran}  ", (head, "dim"), *_memory(progress))
    if executors := _executors(progress):
        title.append(f"  {executors}", "dim")
    said = [Text(plain_text(line)) for line in (words, *(() if ended else _catching_up(progress))) if line]
    if headline:
        said.append(Text.assemble(("Newest result: ", "bold"), plain_text(headline)))
    parts: list[RenderableType] = [title, *said, Streams(progress), _queries(progress)]
    for stream in progress.streams:
        if stream.key_groups:
            parts.append(Text(plain_text(f"{stream.name}: {_groups(stream)}"), style="dim"))
        if stream.planned is not None:
            parts.append(Text(plain_text(f"{stream.name}: {_plan(stream)}"), style="dim"))
        if stream.shed_share:
            parts.append(Text(plain_text(f"{stream.name}: {_left_out(stream)}"), style="yellow"))
    parts.extend(Text.assemble(("! ", "bold yellow"), plain_text(note)) for note in notes)
    return Group(*parts)


def _memory(progress: Progress) -> list[tuple[str, str]]:
    if progress.memory_mode:
        return [(f"  memory {progress.memory:.0%}: what frees it goes first", "yellow")]
    return [(f"  memory {progress.memory:.0%}", "dim")] if progress.memory else []


def _executors(progress: Progress) -> str:
    """Say how many executors there are and are to be; nothing where plans do not ask for any."""
    there, asked = progress.executors, progress.asked_executors
    if not asked:
        return ""
    return _counted(there, "executor") + (f", {asked:,} asked for" if there != asked else "")


def _catching_up(progress: Progress) -> list[str]:
    """Return in words which streams still read what had come before."""
    behind = [stream for stream in progress.streams if stream.catching_up]
    lines = [f"{stream.name}: {_backlog(stream, progress.at)}" for stream in behind[:CATCHING_UP_SHOWN]]
    if len(behind) > len(lines):
        lines.append(f"{_counted(len(behind) - len(lines), 'other stream')} catching up, too")
    return lines


class Streams:
    """The table of streams, with fewer columns where there is little room."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table."""
        wide = options.max_width >= WIDE
        most = ("behind newest", "batches", "last batch", "dead letters")
        table = _table("stream", ("rows", "rows/s", "backlog", "watermark (UTC)", *(most if wide else most[3:])))
        for stream in self._progress.streams:
            dead = sum(stream.dead_letters.values())
            details = (
                _lag(stream).strip(" ()").removesuffix(" behind the newest row") or "-",
                f"{stream.cuts:,}",
                _seconds(stream.batch_micros),
            )
            table.add_row(
                Text(plain_text(stream.name), style="bold"),
                f"{stream.rows:,}",
                f"{stream.rows_per_second:,.0f}",
                Text.assemble(f"{stream.backlog:,}", (_rest(stream, self._progress.at), "dim")),
                _moment(stream.watermark),
                *(details if wide else ()),
                Text(f"{dead:,}", style="yellow" if dead else ""),
            )
        yield table


def _queries(progress: Progress) -> Table:
    table = _table("query", ("windows", "results", "p50", "p95", "p99", "target", "late rows", "state"))
    for query in progress.queries:
        state, style = _state(query)
        table.add_row(
            Text(plain_text(query.name), style="bold"),
            f"{query.windows:,}",
            f"{query.result_rows:,}",
            *(_latency(query, name) for name in ("p50", "p95", "p99")),
            _target(query) if query.target else "-",
            f"{query.late_rows:,}",
            Text(plain_text(state), style=style),
        )
    return table


def _table(first: str, columns: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="left" if column == "state" else "right")
    return table


def _latency(query: QueryProgress, name: str) -> Text:
    value = query.latency.get(name)
    if value is None:
        return Text("-")
    target, style = query.target, ""
    if target is not None and value <= target.limit:
        style = "green"
    elif target is not None and int(name[1:]) <= target.quantile * 100:
        style = "red"
    return Text(_seconds(value), style=style)


def _state(query: QueryProgress) -> tuple[str, str]:
    if query.failure is not None:
        return f"taken out: {query.failure}", "bold red"
    if query.paused:
        return "paused", "yellow"
    if query.waiting > 1:  # one is being written
        which = f" ({max(query.behind, key=query.behind.__getitem__)})" if len(query.behind) > 1 else ""
        return f"sink{which} behind by {_counted(query.waiting, 'result')}", "yellow"
    return "ok", "green"


def _target(query: QueryProgress) -> str:
    assert query.target is not None
    return f"p{query.target.quantile * 100:g} {_seconds(query.target.limit)}"


def _lag(stream: StreamProgress) -> str:
    if not MIN_TIME < stream.watermark < MAX_TIME or stream.max_event_time <= MIN_TIME:
        return ""
    lag = max(stream.max_event_time - stream.watermark, 0)
    return f" ({format_duration(_second(lag) if lag >= MICROS_PER_SECOND else lag)} behind the newest row)"


def _backlog(stream: StreamProgress, now: Micros) -> str:
    """Say what waits to be read, and of a stream that catches up when it will have been."""
    if not stream.catching_up:
        return f"backlog {_counted(stream.backlog, 'row')}{_rest(stream, now)}"
    left = f"catching up, {_counted(stream.backlog, 'row')} left"
    return left if stream.time_left is None else f"{left}, about {_about(stream.time_left)}"


def _about(micros: Micros) -> str:
    """Return a duration as one says it of the future.

    >>> _about(77_400_000), _about(10_000_000_000)
    ('1 minute 18 seconds', '2 hours 46 minutes')
    """
    step = MICROS_PER_SECOND if micros < 600 * MICROS_PER_SECOND else 60 * MICROS_PER_SECOND
    return format_duration(max(-(-micros // MICROS_PER_SECOND) * MICROS_PER_SECOND // step * step, MICROS_PER_SECOND))


def _rest(stream: StreamProgress, now: Micros) -> str:
    """Say that a backlog waits on purpose: it is read when its next window is near."""
    if stream.rests_until is None or not stream.backlog or stream.rests_until <= now:
        return ""
    return f" for a window in {_seconds(stream.rests_until - now)}"


def _groups(stream: StreamProgress) -> str:
    """Say where the key groups are, and what the loss of an executor costs."""
    homes = ", ".join(f"{groups} on {home}" for home, groups in sorted(stream.key_groups.items())[:HOMES_SHOWN])
    others = len(stream.key_groups) - HOMES_SHOWN
    text = f"{_counted(sum(stream.key_groups.values()), 'key group')} on the executors ({homes}"
    text += f", and {others} more)" if others > 0 else ")"
    text += f", {stream.moved_groups:,} moved" if stream.moved_groups else ""
    if stream.recovery_estimate_micros:
        text += f", a lost executor would cost at most {_seconds(stream.recovery_estimate_micros)}"
    if stream.recovery_micros is not None:
        lost = f" ({', '.join(stream.lost_executors)})" if stream.lost_executors else ""
        text += f", the last one{lost} cost {_seconds(stream.recovery_micros)}"
    return text


def _plan(stream: StreamProgress) -> str:
    """Say what is set by the plan, and the latency that it expects beside the one that is measured."""
    assert stream.planned is not None
    text = f"plan: trigger {_seconds(stream.tuning.get('trigger', 0))}"
    rows = stream.tuning.get("rows_per_task")
    text += "" if rows is None else f", a task for {_counted(rows, 'row')}"
    text += f", mean latency {_seconds(stream.planned)} planned"
    return text + (f" and {_seconds(stream.measured)} measured" if stream.measured is not None else "")


def _left_out(stream: StreamProgress) -> str:
    """Say how much could not be read in time.

    A share of less than one in a hundred is not told as none.
    """
    return f"{max(0.01, stream.shed_share):.0%} of the newest rows left out"


def _moment(at: Micros) -> str:
    return format_time(_second(at) if MIN_TIME < at < MAX_TIME else at).removesuffix("Z").replace("T", " ")


def _second(at: Micros) -> Micros:
    return at // MICROS_PER_SECOND * MICROS_PER_SECOND


def _seconds(micros: Micros) -> str:
    seconds = micros / MICROS_PER_SECOND
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def _counted(number: int, what: str) -> str:
    plural = "" if number == 1 else "es" if what.endswith("ch") else "s"
    return f"{number:,} {what}{plural}"
