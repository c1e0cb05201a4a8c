"""Checkpoints that are lost, or old copies: refused, and gone on from with --accept-loss, with whole windows only."""

from __future__ import annotations

import shutil

import pytest
from several import SECOND, Several, at_step, region, results, windows

import transom as tm
from transom.errors import CheckpointCorruptError, SiteError
from transom.sites.incarnations import Incarnations

pytestmark = pytest.mark.usefixtures("in_memory", "compiled_once")

LENGTH = 4 * SECOND


def define(stream, sink):
    values = {"n": tm.count(), "size": tm.sum("size")}
    stream.group_by("zone").window("4 seconds").agg(**values).to(sink("zones"), "zones")


def chained(stream, sink):
    zones = stream.group_by("zone").window("4 seconds").agg(n=tm.count(), size=tm.sum("size"))
    zones.results("zones").window("8 seconds").agg(n=tm.sum("n"), size=tm.sum("size")).to(sink("both"), "both")


def add(several, seconds):
    """Give each source a row for each second; return all."""
    rows = []
    for place, name in enumerate(("north", "south")):
        mine = [("ab"[second % 2], "x", second * SECOND, 10 * second + place) for second in seconds]
        for partition in (0, 1):
            several.rows[name].add(mine[partition::2], partition=partition)
        rows += mine
    return rows


def lose(several, name, how):
    """Put the checkpoint of a site back to what it was, or to nothing."""
    shutil.rmtree(several.root / name)
    if how == "old copy":
        (several.root / f"{name}.copy").rename(several.root / name)


CASES = [
    ("home", "gone", {"home"}),
    ("home", "old copy", {"home"}),
    ("north", "gone", {"home"}),
    ("north", "old copy", {"home", "north"}),
]


def go_on(several, who, how, accepting, kill=lambda name, tries: None):
    """Lose a checkpoint between runs, accept that, and return all rows that there were."""
    rows = add(several, range(18))
    several.run(close_all=False)
    shutil.copytree(several.root / who, several.root / f"{who}.copy")
    rows += add(several, range(18, 30))
    several.run(close_all=False)
    lose(several, who, how)
    if who == "home":  # what it had written is marked as of the checkpoint that is lost
        several.sinks.clear()
    rows += add(several, range(30, 45))
    several.accept_loss = frozenset(accepting)
    several.run(kill=kill, close_all=False)
    several.accept_loss = frozenset()
    rows += add(several, range(45, 80))
    several.run()
    return rows


@pytest.mark.parametrize("kills", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("who", "how", "accepting"), CASES)
def test_what_is_lost_is_gone_on_from_with_whole_windows(spark, tmp_path, who, how, accepting, kills):
    watermark = tm.watermark(0, max_ahead=None)
    several = Several(spark, tmp_path, region(["north", "south"], "home"), define, watermark=watermark)

    def kill(name, tries):
        return at_step("any", 5 * tries + 3) if kills and name == "home" and tries < 8 else None

    rows = go_on(several, who, how, accepting, kill)
    whole, given = windows(rows, ("zone",), LENGTH), results(several.sinks["zones"], "zones", ("zone",))
    assert not given - whole  # each is whole, and none comes twice
    assert {each for each in whole if each[0] >= 48 * SECOND} <= given.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("who", "how", "accepting"), CASES)
def test_windows_over_results_are_whole_too(spark, tmp_path, who, how, accepting, monkeypatch):
    monkeypatch.undo()  # Spark computes them
    watermark = tm.watermark(0, max_ahead=None)
    several = Several(spark, tmp_path, region(["north", "south"], "home"), chained, watermark=watermark)
    rows = go_on(several, who, how, accepting)
    whole, given = windows(rows, (), 2 * LENGTH), results(several.sinks["both"], "both", ())
    assert not given - whole
    assert {each for each in whole if each[0] >= 56 * SECOND} <= given.keys()


@pytest.mark.parametrize(("who", "how", "accepting"), CASES)
def test_a_refusal_names_the_remedy(spark, tmp_path, who, how, accepting):
    several = Several(spark, tmp_path, region(["north"], "home"), define)
    several.rows["north"].add([("a", "x", second * SECOND, 1) for second in range(5)])
    several.run(close_all=False)
    shutil.copytree(tmp_path / who, tmp_path / f"{who}.copy")
    several.rows["north"].add([("a", "x", second * SECOND, 1) for second in range(5, 30)])
    several.run(close_all=False)
    lose(several, who, how)
    several.rows["north"].add([("a", "x", 40 * SECOND, 1)])
    running = {name: several.start(name, once=True) for name in ("home", "north")}
    with pytest.raises(SiteError) as caught:
        running["north"].wait("10 minutes")
    assert "once with --accept-loss" in caught.value.remedy
    assert ("both, the site and the destination" in caught.value.remedy) == (len(accepting) == 2)
    running["home"].stop()
    running["home"].wait("10 minutes")


def test_incarnations_are_durable(tmp_path):
    made = Incarnations("ck", tmp_path, lambda: None)
    assert made.of("f") == "ck"
    renewed = made.renew("f")
    assert renewed != "ck"
    again = Incarnations("ck", tmp_path, lambda: None)
    assert (again.of("f"), again.of("g")) == (renewed, "ck")
    (tmp_path / "incarnations").write_bytes(b"rubbish\n")
    with pytest.raises(CheckpointCorruptError):
        Incarnations("ck", tmp_path, lambda: None)
