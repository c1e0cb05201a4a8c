from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from transom.engine.loop.progress import LatencyTarget, Progress, QueryProgress, StreamProgress
from transom.model.time import MICROS_PER_SECOND, MIN_TIME
from transom.views.dashboard import log_lines, render, to_json
from transom.views.terminal import JsonView, LineView, LiveView, make_view

START = 1_700_000_000 * MICROS_PER_SECOND


def progress(seconds: float, notes: tuple[str, ...] = (), watermark: int = START) -> Progress:
    stream = StreamProgress(
        "trips",
        "files trips/*.json",
        12,
        3_456,
        789.1,
        1_000,
        watermark,
        START + 30_000_000,
        {"late": 2},
        250_000,
    )
    queries = (
        QueryProgress(
            "fares", "trips", "parquet", 5, 50, {"p50": 400_000, "p95": 2_500_000, "p99": 3_000_000},
            LatencyTarget(2_000_000, 0.95), 7, 0, None,
        ),
        QueryProgress("bad", "trips", "console", 0, 0, {}, None, 0, 0, "division by zero"),
        QueryProgress("slow", "trips", "console", 1, 1, {}, None, 0, 3, None),
        QueryProgress("rest", "trips", "console", 1, 1, {}, None, 0, 0, None, paused=True, complete_from=START),
    )  # fmt: skip
    return Progress(START + int(seconds * MICROS_PER_SECOND), START, (stream,), queries, notes=notes)


def text(value) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(value)
    return console.file.getvalue()


def test_executors_that_plans_ask_for_are_told_beside_those_that_there_are():
    assert "executor" not in "".join(log_lines(progress(61)))
    for there, asked, said in (
        (2, 2, "2 executors"),
        (1, 3, "1 executor, 3 asked for"),
        (0, 1, "0 executors, 1 asked"),
    ):
        shown = replace(progress(61), executors=there, asked_executors=asked)
        assert any(said in line for line in log_lines(shown))
        assert said in text(render(shown, []))
        assert to_json(shown)["asked_executors"] == asked


def test_the_live_picture():
    shown = text(render(progress(61), ["query bad was taken out"]))
    for expected in (
        "1 minute 1 second",
        "3,456",
        "789",
        "2023-11-14 22:13:20",
        "30 seconds",
        "p95 2.0 s",
        "400 ms",
    ):
        assert expected in shown
    assert "taken out: division by zero" in shown
    assert "sink behind by 3 results" in shown
    assert "paused" in shown
    assert "! query bad was taken out" in shown


def test_a_latency_beyond_its_target_is_red():
    console = Console(width=160, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(render(progress(1), []))
    shown = console.file.getvalue()
    assert "\x1b[32m400 ms" in shown
    assert "\x1b[31m2.5 s" in shown
    # The target says nothing about the slowest 5 %.
    assert "\x1b[31m3.0 s" not in shown


def test_nothing_is_known_yet():
    shown = text(render(progress(0, watermark=MIN_TIME), []))
    assert "none yet" in shown
    values = to_json(progress(0, watermark=MIN_TIME))
    assert values["streams"][0]["watermark"] is None
    assert [query["complete_from"] for query in values["queries"]] == [None, None, None, START]


def test_log_lines():
    lines = log_lines(progress(1, ("a note",)))
    assert lines[0] == "2023-11-14T22:13:21Z note: a note"
    assert "3,456 rows, 789 rows/s, backlog 1,000 rows" in lines[1]
    assert "2 dead letters" in lines[1]
    assert "latency p50 400 ms p95 2.5 s p99 3.0 s (target p95 2.0 s), 7 late rows, ok" in lines[2]


def test_one_is_not_many():
    seen = progress(1)
    (line, *_) = log_lines(replace(seen, streams=(replace(seen.streams[0], cuts=1, rows=1),)))
    assert "stream trips: 1 row, 789 rows/s" in line
    assert "1 micro-batch, last" in line


def test_short_memory_is_told():
    short = replace(progress(1), memory=0.85, memory_mode=True)
    assert "memory 85%: what frees it goes first" in log_lines(short)[0]
    assert "memory 85%: what frees it goes first" in text(render(short, []))
    assert (to_json(short)["memory"], to_json(short)["memory_mode"]) == (0.85, True)
    calm = replace(short, memory=0.4, memory_mode=False)
    assert not any("memory" in line for line in log_lines(calm))
    assert "memory 40%" in text(render(calm, []))


def test_the_plan_and_what_is_left_out_are_told():
    one = progress(1)
    tuning = {"trigger": 300_000, "rows_per_task": 5_000}
    stream = replace(one.streams[0], tuning=tuning, planned=420_000, measured=450_000, shed_share=0.123)
    seen = replace(one, streams=(stream,))
    plan = "plan: trigger 300 ms, a task for 5,000 rows, mean latency 420 ms planned and 450 ms measured"
    for shown in (log_lines(seen)[0], text(render(seen, []))):
        assert plan in shown
        assert "12% of the newest rows left out" in shown
    assert (to_json(seen)["streams"][0]["planned"], to_json(seen)["streams"][0]["shed_share"]) == (420_000, 0.123)
    assert "left out" not in text(render(one, []))
    assert "plan" not in text(render(one, []))
    little = replace(one, streams=(replace(stream, shed_share=0.001, measured=None),))
    assert "420 ms planned, 1% of" not in log_lines(little)[0]
    assert "1% of the newest rows left out" in log_lines(little)[0]


def test_where_key_groups_are_and_what_a_lost_executor_costs():
    one = progress(1)
    assert "key groups" not in text(render(one, []))
    (stream,) = one.streams
    there = replace(stream, key_groups={"0": 3, "2": 3}, moved_groups=2, recovery_estimate_micros=400_000)
    shown = replace(one, streams=(replace(there, recovery_micros=1_500_000, lost_executors=("1",)),))
    where = "6 key groups on the executors (3 on 0, 3 on 2), 2 moved"
    words = f"{where}, a lost executor would cost at most 400 ms, the last one (1) cost 1.5 s"
    assert f"trips: {words}" in " ".join(text(render(shown, [])).split())
    assert words in log_lines(shown)[0]
    many = replace(one, streams=(replace(stream, key_groups={f"{n}": 1 for n in range(9)}),))
    assert "9 key groups on the executors (1 on 0, 1 on 1, 1 on 2, 1 on 3, 1 on 4, 1 on 5, and 3 more)" in " ".join(
        text(render(many, [])).split()
    )
    assert to_json(shown)["streams"][0]["key_groups"] == {"0": 3, "2": 3}


def test_lines_come_every_few_seconds_and_notes_at_once():
    out = io.StringIO()
    with LineView(out, io.StringIO()) as view:
        view.update(progress(0))
        after_first = len(out.getvalue().splitlines())
        view.update(progress(1))
        assert len(out.getvalue().splitlines()) == after_first
        view.update(progress(2, ("look here",)))
        assert out.getvalue().splitlines()[-1].endswith("note: look here")
        view.update(progress(6))
    assert len(out.getvalue().splitlines()) == 2 * after_first + 1


def test_json_lines_end_with_the_final_object():
    out = io.StringIO()
    with JsonView(out, io.StringIO()) as view:
        view.update(progress(0))
        view.update(progress(1))
        view.finish(progress(1))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["progress", "final"]
    assert lines[1]["queries"][0]["latency"]["p95"] == 2_500_000


def test_the_live_view_on_a_terminal():
    console = Console(width=160, height=40, file=io.StringIO(), force_terminal=True)
    with LiveView(console) as view:
        view.update(progress(0))
        view.say("a line of Spark")
        view.finish(progress(3, ("the last note",)))
    shown = console.file.getvalue()
    assert "a line of Spark" in shown
    assert "the last note" in shown
    assert "ended" in shown


def test_a_pipe_gets_lines():
    assert isinstance(make_view(io.StringIO(), io.StringIO(), False), LineView)
    assert isinstance(make_view(io.StringIO(), io.StringIO(), True), JsonView)


def test_a_backlog_that_waits_on_purpose_says_so():
    at = progress(1)
    rests = replace(at, streams=(replace(at.streams[0], rests_until=at.at + 6_400_000),))
    assert "backlog 1,000 rows for a window in 6.4 s, watermark" in log_lines(rests)[0]
    assert "1,000 for a window in 6.4 s" in text(render(rests, []))
    over = replace(at, streams=(replace(at.streams[0], rests_until=at.at - 1),))
    assert log_lines(over) == log_lines(at)


def test_memory_is_shown():
    assert "memory 43%" in text(render(replace(progress(1), memory=0.43), []))
    assert "memory 91%: what frees it goes first" in text(
        render(replace(progress(1), memory=0.91, memory_mode=True), [])
    )


def catching_up(left: int | None = 77_400_000) -> Progress:
    at = progress(1)
    stream = replace(at.streams[0], catching_up=True, backlog=275_353, time_left=left)
    return replace(at, streams=(stream,), queries=(replace(at.queries[0], latency={}),))


def test_a_stream_that_catches_up_says_what_is_left():
    left = "catching up, 275,353 rows left, about 1 minute 18 seconds"
    stream, query = log_lines(catching_up())
    assert f"789 rows/s, {left}, watermark" in stream
    assert "latency measured once it has caught up" in query
    assert f"trips: {left}\n" in text(render(catching_up(), [])).replace("  ", "")
    unknown = log_lines(catching_up(None))[0]
    assert "catching up, 275,353 rows left, watermark" in unknown


def test_of_many_streams_that_catch_up_only_some_are_told():
    at = catching_up()
    many = replace(at, streams=tuple(replace(at.streams[0], name=f"s{number}") for number in range(9)))
    shown = text(render(many, []))
    assert "s2: catching up" in shown
    assert "s3: catching up" not in shown
    assert "6 other streams catching up, too" in shown


def test_a_narrow_terminal_has_fewer_columns():
    for width, has in ((80, False), (120, True)):
        console = Console(width=width, file=io.StringIO())
        console.print(render(progress(1), []))
        shown = console.file.getvalue()
        assert ("behind newest" in shown) == has
        assert "2023-11-14 22:13:20" in shown
        assert all(len(line) <= width for line in shown.splitlines())


def test_words_and_the_newest_result():
    console = Console(width=160, height=40, file=io.StringIO(), force_terminal=True)
    with LiveView(console) as view:
        view.tell("All is well.")
        view.headline("17 trips")
        view.update(progress(0))
    assert "All is well." in console.file.getvalue()
    assert "17 trips" in console.file.getvalue()
    out = io.StringIO()
    with LineView(out, io.StringIO()) as lines:
        lines.tell("All is well.")
        lines.headline("17 trips")
        lines.headline("18 trips")
    assert out.getvalue() == "All is well.\nFirst result: 17 trips\n"
    with JsonView(out, io.StringIO()) as programs:
        programs.tell("All is well.")
        programs.headline("17 trips")
    assert out.getvalue() == "All is well.\nFirst result: 17 trips\n"


def test_names_do_not_reach_the_terminal_as_commands():
    bad = "q\x1b[2J\x07"
    state = progress(61, (f"query {bad} was taken out",))
    queries = tuple(replace(query, name=bad, failure=bad) for query in state.queries)
    state = replace(state, queries=queries, streams=tuple(replace(stream, name=bad) for stream in state.streams))
    for shown in (text(render(state, [bad], words=bad, headline=bad)), "\n".join(log_lines(state))):
        assert "\x1b[2J" not in shown
        assert "\x07" not in shown
        assert "q\\x1b[2J\\x07" in shown
