"""Several sites in one process: what comes of their rows is what one application on all rows gives."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress

import pytest
from several import MOST_LOOKS, SCHEMA, SECOND, Several, at_step, region, results, windows

import transom as tm
from transom.errors import CheckpointError, DefinitionError, JobChangedError, SiteError
from transom.sites.status import read_status

pytestmark = pytest.mark.usefixtures("in_memory", "compiled_once")


def draw(seed, number, span=40):
    """Return rows in no order."""
    numbers = random.Random(seed)
    return [
        (numbers.choice("abc"), numbers.choice("xy"), numbers.randrange(span * SECOND), numbers.randrange(100))
        for _ in range(number)
    ]


def define(stream, sink):
    """Queries of which two are coarser than the first."""
    values = {"n": tm.count(), "size": tm.sum("size")}
    stream.group_by("zone", "kind").window("4 seconds").agg(**values).to(sink("fine"), "fine")
    stream.group_by("zone").window(tm.sliding("6 seconds", every="3 seconds")).agg(**values).to(sink("zones"), "zones")
    stream.window("10 seconds").agg(**values).to(sink("all"), "all")


def require_exact(several, rows):
    found = {name: results(several.sinks[name], name, keys) for name, keys in KEYS.items()}
    assert found["fine"] == windows(rows, KEYS["fine"], 4 * SECOND)
    assert found["zones"] == windows(rows, KEYS["zones"], 6 * SECOND, 3 * SECOND)
    assert found["all"] == windows(rows, KEYS["all"], 10 * SECOND)


KEYS = {"fine": ("zone", "kind"), "zones": ("zone",), "all": ()}


def add(several, seed, number, span=40):
    """Give each source some rows; return all."""
    rows = []
    for place, entry in enumerate(several.region.sites):
        if entry.sources:
            mine = draw(seed + place, number, span)
            rows += mine
            several.rows[entry.name].add(mine[::2], partition=0)
            several.rows[entry.name].add(mine[1::2], partition=1)
    return rows


def test_two_sources_and_one_destination(spark, tmp_path):
    several = Several(spark, tmp_path, region(["north", "south"], "home"), define)
    rows = add(several, 1, 40)
    progress = several.run(close_all=False)
    assert {query.name for query in progress["home"].queries} == {"fine", "zones", "all"}
    assert [stream.rows for stream in progress["north"].streams] == [40]
    assert [stream.rows for stream in progress["home"].streams] == [80]
    # What is there goes on, with more rows.
    rows += add(several, 9, 30)
    several.run()
    require_exact(several, rows)
    status = read_status(tmp_path / "north")
    (flow,) = status["leaving"]
    assert (flow["flow"], flow["destination"], flow["outbox_bytes"]) == ("fine", "home", flow["outbox_bytes"])
    assert flow["arrived_cut"] == flow["committed_cut"] == flow["fixed_cut"]
    assert 100 < flow["parcel_bytes"] < 10_000
    (home,) = [link["used"] for link in status["links"] if link["to"] == "home"]
    assert home > 0
    (flow,) = read_status(tmp_path / "home")["arriving"]
    assert flow["sources"].keys() == {"north", "south"}
    assert flow["queries"] == ["fine", "zones", "all"]


def test_what_the_end_of_a_run_waits_for_is_told(spark, tmp_path):
    several = Several(spark, tmp_path, region(["north", "south"], "home"), define)
    rows = add(several, 1, 5)
    north = several.start("north", once=True)
    wait_for(north, lambda: read_status(tmp_path / "north").get("waits"))
    (waits,) = read_status(tmp_path / "north")["waits"]
    assert waits.startswith("home, which is not connected, has not said that it has cut ")
    others = [several.start(name, once=True) for name in ("south", "home")]
    for run in (north, *others):
        run.wait("10 minutes")
    require_exact(several, rows)
    assert read_status(tmp_path / "north")["waits"] == []


def test_sites_between_which_no_link_is_stated(spark, tmp_path):
    """What is stated is what plans know; who is not named in it can be connected with all the same."""
    links = {("north", "south"): 1e6, ("south", "home"): 1e6}
    several = Several(spark, tmp_path, region(["north", "south"], "home", links=links), define)
    rows = add(several, 1, 10)
    several.run()
    require_exact(several, rows)


def test_each_site_may_be_source_and_destination(spark, tmp_path):
    destinations = {"fine": "north", "zones": "south"}
    several = Several(spark, tmp_path, region(["north", "south"], "home", destinations=destinations), define)
    rows = add(several, 3, 30)
    several.run()
    require_exact(several, rows)


@pytest.mark.parametrize("victim", ["north", "home"])
def test_killed_at_any_step(spark, tmp_path, victim):
    """Kills come ever later; each run recovers from the one before."""
    settings = {"snapshot_bytes": 4_000, "max_rows_per_cut": 5}
    several = Several(spark, tmp_path, region(["north", "south"], "home"), define, settings=settings)
    rows = add(several, 5, 25)
    several.run(kill=lambda name, tries: at_step("any", tries + 1) if name == victim else None)
    require_exact(several, rows)
    assert several.kills[victim] > 5


@pytest.mark.slow
def test_a_destination_without_memory_takes_what_its_windows_wait_for(spark, tmp_path):
    """North has come to its end before south has begun: windows that wait for south alone leave no room for north's."""
    settings = {"driver_bytes": 1, "max_rows_per_cut": 4}
    several = Several(
        spark, tmp_path, region(["north", "south"], "home"), define, watermark=tm.watermark(0), settings=settings
    )
    rows = {
        name: [("abc"[second % 3], "xy"[second % 2], second * SECOND, second) for second in range(first, 81)]
        for name, first in (("north", 0), ("south", 3))
    }
    running = {name: several.start(name) for name in ("north", "home")}
    for look in range(MOST_LOOKS):
        for partition in (0, 1):  # one after the other, as windows would wait for a parcel of all
            several.rows["north"].add(rows["north"][look : look + 1], partition=partition)
        with pytest.raises(TimeoutError):
            running["home"].wait("10 ms")
        if look > 81 and crowded(several):
            break
    else:
        raise AssertionError(read_status(tmp_path / "home"))
    stream = several.apps["home"]._loop.streams["fine.arriving"]
    assert max(each or 0 for each in stream.state.watermark.newest) < 80 * SECOND
    for partition in (0, 1):
        several.rows["south"].add(rows["south"], partition=partition)
    running["south"] = several.start("south")
    made = windows(2 * rows["north"] + 2 * rows["south"], KEYS["fine"], 4 * SECOND)
    wanted = {each: 1 for each in made if each[0] < 80 * SECOND}
    for _ in range(MOST_LOOKS):
        if results(several.sinks["fine"], "fine", KEYS["fine"]) == wanted:
            break
        with pytest.raises(TimeoutError):
            running["home"].wait("10 ms")
    else:
        raise AssertionError(read_status(tmp_path / "home"))
    for each in running.values():
        each.stop()
        each.wait("10 minutes")


def crowded(several: Several) -> bool:
    """Tell whether the destination takes only what its windows wait for."""
    loop = several.apps["home"]._loop
    return loop is not None and bool(loop.beside.receiving._crowded)


def test_late_rows_are_counted_by_site(spark, tmp_path):
    several = Several(spark, tmp_path, region(["north", "south"], "home"), define, watermark=tm.watermark(0))
    rows = []
    for name in ("north", "south"):
        mine = [("a", "x", second * SECOND, second) for second in range(21)]
        rows += mine
        for partition in (0, 1):
            several.rows[name].add(mine[partition::2] + mine[-1:], partition=partition)
        rows.append(mine[-1])
    several.run(close_all=False)
    closed = results(several.sinks["fine"], "fine", KEYS["fine"])
    assert closed == {each: 1 for each in windows(rows, KEYS["fine"], 4 * SECOND) if each[0] <= 16 * SECOND}
    late = [("a", "x", 2 * SECOND, 7), ("a", "x", 15 * SECOND, 8)]
    several.rows["south"].add(late)
    progress = several.run()
    assert {query.name: query.late_rows for query in progress["home"].queries} == {"fine": 2, "zones": 1, "all": 2}
    (flow,) = read_status(tmp_path / "home")["arriving"]
    assert flow["late_rows"] == {"fine": {"south": 2}, "zones": {"south": 1}, "all": {"south": 2}}


def test_a_query_that_is_new_to_a_checkpoint_is_refused(spark, tmp_path):
    several = Several(spark, tmp_path, region(["north"], "north"), define)
    rows = add(several, 1, 5)
    several.run()
    require_exact(several, rows)

    def more(stream, sink):
        define(stream, sink)
        stream.group_by("kind").window("5 seconds").agg(n=tm.count()).to(sink("kinds"), "kinds")

    with pytest.raises(JobChangedError):
        several.app("north", more).run(once=True)


@pytest.mark.parametrize(
    "policy",
    [pytest.param({"idle_after": "20 ms"}, marks=pytest.mark.slow), {"idle_after": "20 ms", "close_on_idle": "40 ms"}],
)
def test_a_site_says_itself_that_it_is_idle(spark, tmp_path, policy):
    """South has no row: windows that north has filled close; the last one only as time goes on."""
    watermark = tm.watermark(0, max_ahead=None, **policy)
    several = Several(spark, tmp_path, region(["north", "south"], "home"), define, watermark=watermark)
    rows = [("a", "x", second * SECOND, second) for second in range(10)]
    for partition in (0, 1):
        several.rows["north"].add(rows[partition::2], partition=partition)
    running = [several.start(name) for name in ("north", "south", "home")]
    until = 8 * SECOND if "close_on_idle" in policy else 4 * SECOND
    expected = {each: 1 for each in windows(rows, KEYS["fine"], 4 * SECOND) if each[0] <= until}
    for _ in range(MOST_LOOKS):
        if results(several.sinks["fine"], "fine", KEYS["fine"]) == expected:
            break
        with pytest.raises(TimeoutError):
            running[0].wait("10 ms")
    else:
        raise AssertionError(read_status(tmp_path / "home"))
    for each in running:
        each.stop()
        each.wait("10 minutes")
    assert results(several.sinks["fine"], "fine", KEYS["fine"]) == expected


@pytest.mark.parametrize(("lost", "says"), [("home", "sent up to cut"), ("north", "another checkpoint")])
def test_who_has_lost_its_checkpoint_is_refused(spark, tmp_path, lost, says):
    several = Several(spark, tmp_path, region(["north", "south"], "home"), define)
    add(several, 1, 10)
    several.run(close_all=False)
    shutil.rmtree(tmp_path / lost)
    assert "checkpoint" in refused_remedy(several, ("north", "home"), says)


def refused_remedy(several: Several, begin: tuple[str, str], says: str) -> str:
    """Begin two sites, of which north is refused; return what it is told to do."""
    running = {name: several.start(name, once=True) for name in begin}
    with pytest.raises(SiteError, match=says) as caught:
        running["north"].wait("10 minutes")
    running["home"].stop()
    running["home"].wait("10 minutes")
    return caught.value.remedy


def test_an_old_copy_of_a_checkpoint_is_refused(spark, tmp_path):
    """It would make other cuts with numbers that the destination has already, which that would take for known."""
    several = Several(spark, tmp_path, region(["north"], "home"), define)
    add(several, 1, 10)
    several.run(close_all=False)
    shutil.copytree(tmp_path / "north", tmp_path / "copy")
    add(several, 2, 30)
    several.run(close_all=False)
    shutil.rmtree(tmp_path / "north")
    (tmp_path / "copy").rename(tmp_path / "north")
    assert "newest checkpoint" in refused_remedy(several, ("home", "north"), "cuts up to")


def test_a_flow_that_was_refused_leaves_when_the_destination_knows_it(spark, tmp_path):
    several = Several(spark, tmp_path, region(["north"], "home"), define)
    both = region(["north", "south"], "home")
    several.rows["south"] = tm.sources.memory(SCHEMA, partitions=2)
    home = several.start("home")
    several.region = both
    rows = add(several, 1, 10)
    running = [several.start(name) for name in ("south", "north")]
    wait_for(running[0], lambda: read_status(tmp_path / "south")["leaving"][0]["refused"])
    home.stop()
    home.wait("10 minutes")
    running.append(several.start("home"))
    wait_for(running[0], lambda: several._arrived("south") and several._arrived("north"))
    for each in running:
        each.stop()
        each.wait("10 minutes")
    several.run()
    require_exact(several, rows)


def wait_for(run, there):
    """Wait until something is so."""
    for _ in range(MOST_LOOKS):
        with suppress(CheckpointError):
            if there():
                return
        with pytest.raises(TimeoutError):
            run.wait("10 ms")
    raise AssertionError("It hangs.")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (lambda stream: stream.group_by("zone").window(tm.session_window("5 seconds")).agg(n=tm.count()), "session"),
        (lambda stream: stream.rows(), "rows"),
        (lambda stream: stream.window("4 seconds").agg(n=tm.count()).within("5 seconds", on_overload="shed"), "shed"),
    ],
)
def test_what_cannot_be_over_several_sites(spark, tmp_path, query, says):
    def broken(stream, sink):
        made = query(stream)
        made.to(str(tmp_path / "out") if says == "rows" else sink("q"), name="q")

    several = Several(spark, tmp_path, region(["north"], "home"), broken)
    with pytest.raises(DefinitionError, match=says):
        several.app("north").run(once=True)


def test_partials_are_not_kept_by_executors(spark, tmp_path):
    several = Several(spark, tmp_path, region(["north"], "north"), define, settings={"tier": "cluster"})
    with pytest.raises(DefinitionError, match="cluster"):
        several.app("north").run(once=True)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40))])
def test_random(spark, tmp_path, seed):
    """Random sites, destinations, rows, cuts, intervals and kills."""
    numbers = random.Random(seed)
    names = [f"s{number}" for number in range(numbers.randint(1, 3))]
    destinations = {query: numbers.choice(["home", *names]) for query in KEYS if numbers.random() < 0.5}
    if len(destinations) == len(KEYS):  # home has something to do
        destinations["all"] = "home"
    settings = {"snapshot_bytes": numbers.choice([3_000, 1 << 20]), "max_rows_per_cut": numbers.randint(3, 30)}
    where = region(names, "home", destinations=destinations, tick=numbers.choice([1_000, 20_000]))
    several = Several(spark, tmp_path, where, define, settings=settings)
    rows = []
    for _ in range(numbers.randint(1, 3)):
        rows += add(several, numbers.randrange(1_000), numbers.randint(0, 40))
        kills = {entry.name: [numbers.randint(2, 60) for _ in range(numbers.randint(0, 3))] for entry in where.sites}

        def kill(name, tries, kills=kills):
            return at_step("any", kills[name][tries]) if tries < len(kills[name]) else None

        several.run(kill=kill, close_all=False)
    several.run()
    require_exact(several, rows)
