"""Windows that do not wait for a site of which nothing is heard: they are exact, and say who is missing."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from several import MOST_LOOKS, SECOND, Several, at_step, region, windows

import transom as tm
from transom.errors import DefinitionError, SiteError
from transom.sites import waiting
from transom.sites.status import read_status

pytestmark = pytest.mark.usefixtures("in_memory", "compiled_once")

LENGTH = 4 * SECOND
PATIENCE = tm.watermark(0, max_ahead=None, absent_after="300 ms")


def define(stream, sink):
    stream.group_by("zone").window("4 seconds").agg(n=tm.count(), size=tm.sum("size")).to(sink("zones"), "zones")


def correcting(stream, sink):
    windowed = stream.group_by("zone").window("4 seconds", lateness="1 hour")
    windowed.agg(n=tm.count(), size=tm.sum("size")).to(sink("zones"), "zones")


def several_of(spark, tmp_path, queries=define, **options):
    where = region(["north", "south"], "home", most=1)
    return Several(spark, tmp_path, where, queries, watermark=PATIENCE, away=frozenset({"south"}), **options)


def add(several, rows, site, seconds):
    """Give a site a row for each second, and return them all by site."""
    mine = [("ab"[second % 2], "x", second * SECOND, second) for second in seconds]
    for partition in (0, 1):
        several.rows[site].add(mine[partition::2], partition=partition)
    rows[site] += mine


def rows_of(several):
    table = several.sinks["zones"].to_table("zones")
    starts = table.column("window_start").cast("timestamp[us]").cast("int64").to_pylist()
    columns = [table.column(name).to_pylist() for name in ("zone", "n", "size", "missing")]
    return list(zip(starts, *columns, strict=True))


def require_told(several, rows, last=True):
    """Require of each window all rows of the sites that are there, none twice; return who is missing by window."""
    counted = {site: {each[:2]: each[2:] for each in windows(mine, ("zone",), LENGTH)} for site, mine in rows.items()}
    found = rows_of(several)
    assert not last or not [each for each, times in Counter(row[:2] for row in found).items() if times > 1]
    for start, zone, n, size, missing in found:
        least = [counted[site].get((start, zone), (0, 0)) for site in rows if site not in missing]
        most = [counted[site].get((start, zone), (0, 0)) for site in rows]
        assert sum(each[0] for each in least) <= n <= sum(each[0] for each in most)
        assert sum(each[1] for each in least) <= size <= sum(each[1] for each in most)
    return {start: missing for start, _, _, _, missing in found}


def go_on(several, rows, kill=lambda name, tries: None):
    """Run the sites that are there until that many results are; nothing depends on who else seems to be silent."""
    several._run_on(kill)
    running = [several.start(name) for name in ("north", "home")]
    for _ in range(MOST_LOOKS):
        if several.sinks["zones"].to_table("zones") is not None and len({row[:2] for row in rows_of(several)}) >= rows:
            break
        with pytest.raises(TimeoutError):
            running[1].wait("10 ms")
    else:
        raise AssertionError(read_status(several.root / "home"))
    for each in running:
        each.stop()
        each.wait("10 minutes")


def all_come(several):
    """Let the site that was away run, too, and nobody be left out who was not before."""
    several.away, several.watermark = frozenset(), tm.watermark(0, max_ahead=None, absent_after="1 hour")


def test_windows_go_on_without_a_site_and_wait_when_it_is_back(spark, tmp_path):
    several, rows = several_of(spark, tmp_path), defaultdict(list)
    add(several, rows, "north", range(20))
    go_on(several, 8)
    assert all("south" in missing for missing in require_told(several, rows).values())
    (flow,) = read_status(tmp_path / "home")["arriving"]
    assert "south" in flow["left_out"]
    assert flow["held_back_by"] != "south"
    # South comes with rows of which the first are late, and catches up.
    all_come(several)
    add(several, rows, "south", range(40))
    add(several, rows, "north", range(20, 40))
    progress = several.run()
    missing = require_told(several, rows)
    assert len(missing) == 10
    assert missing[36 * SECOND] == []
    assert progress["home"].queries[0].late_rows > 0


@pytest.mark.slow
def test_a_run_that_ends_does_so_without_the_site(spark, tmp_path):
    several, rows = several_of(spark, tmp_path), defaultdict(list)
    several.watermark = tm.watermark(0, max_ahead=None, absent_after="10 seconds")
    add(several, rows, "north", range(10))
    several.run()
    assert all("south" in missing for missing in require_told(several, rows).values())
    assert sum(each[2] for each in rows_of(several)) == 10


def test_killed_at_any_step_while_a_site_is_away(spark, tmp_path):
    """What a record says of who is missing is what results say, however often they are made again."""
    several = several_of(spark, tmp_path, settings={"snapshot_bytes": 4_000, "max_rows_per_cut": 5})
    several.watermark = tm.watermark(0, max_ahead=None, absent_after="40 ms")
    rows = defaultdict(list)
    add(several, rows, "north", range(30))
    go_on(several, 12, lambda name, tries: at_step("any", tries + 1) if name == "home" else None)
    assert several.kills["home"] > 1  # how many cuts there are depends on how busy the machine is
    assert all("south" in missing for missing in require_told(several, rows).values())
    all_come(several)
    add(several, rows, "south", range(50))
    add(several, rows, "north", range(30, 50))
    several.run(kill=lambda name, tries: at_step("any", 4 * tries + 1) if name == "home" and tries < 9 else None)
    missing = require_told(several, rows)
    assert len(missing) == 13
    assert missing[48 * SECOND] == []


def test_what_a_site_brings_later_corrects_results(spark, tmp_path):
    several, rows = several_of(spark, tmp_path, correcting), defaultdict(list)
    add(several, rows, "north", range(20))
    go_on(several, 8)
    all_come(several)
    add(several, rows, "south", range(20))
    several.run()
    require_told(several, rows, last=False)
    newest = {row[:2]: row[2:] for row in rows_of(several)}  # a later revision replaces the one before
    together = windows([*rows["north"], *rows["south"]], ("zone",), LENGTH)
    assert {(*key, *values[:2]) for key, values in newest.items()} == set(together)


def test_who_is_behind_at_the_end_has_said_that_all_is_there(spark, tmp_path):
    several, rows = several_of(spark, tmp_path), defaultdict(list)
    add(several, rows, "north", range(20))
    go_on(several, 8)
    all_come(several)
    add(several, rows, "south", range(3))
    several.run()
    assert require_told(several, rows)[16 * SECOND] == []


@pytest.mark.parametrize(
    ("patience", "most", "queries", "says"),
    [
        ("39 ms", 1, define, "40 ms"),
        ("2 seconds", 60, define, "most_interval"),
        ("1 minute", 1, lambda s, sink: s.window("4 seconds").agg(missing=tm.count()).to(sink("q"), "q"), "'missing'"),
        (
            "1 minute",
            1,
            lambda s, sink: (
                s.window("4 seconds").agg(n=tm.count()).results("q").window("8 seconds").agg(m=tm.sum("n"))
            ).to(sink("p"), "p"),
            "would not tell",
        ),
    ],
)
def test_what_does_not_go_with_leaving_out_sites(spark, tmp_path, patience, most, queries, says):
    where = region(["north", "south"], "home", most=most)
    watermark = tm.watermark(0, max_ahead=None, absent_after=patience)
    several = Several(spark, tmp_path, where, queries, watermark=watermark)
    with pytest.raises(DefinitionError) as caught:
        several.app("home").run(once=True)
    assert says in f"{caught.value}"


def test_a_run_that_ends_does_not_wait_for_a_destination_that_ended_without_it(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "ALONE", 0)
    several, rows = several_of(spark, tmp_path), defaultdict(list)
    add(several, rows, "south", range(8))
    with pytest.raises(SiteError, match="may have ended without south"):
        several.start("south", once=True).wait("10 minutes")
    several.away = frozenset()
    add(several, rows, "north", range(8))
    several.watermark = tm.watermark(0, max_ahead=None, absent_after="1 hour")
    several.run()
    assert not any(require_told(several, rows).values())


def test_it_waits_while_nobody_listens_and_begins_anew_with_each_word():
    alone = waiting.Alone()
    assert alone.look(10**12, {"zones": 1}) == {}
    for second in range(1, 120):
        assert alone.look(10**12 + second * SECOND, {"zones": 1}) == {}
    assert alone.look(10**12 + 10**10, {"zones": 1}) == {"zones": 121 * SECOND}
    alone.heard("zones")
    assert alone.look(10**12 + 2 * 10**10, {"zones": 1}) == {}
    assert alone.look(10**12 + 3 * 10**10, {}) == {}
