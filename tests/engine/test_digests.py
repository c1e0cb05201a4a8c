"""What a running application knows of its costs: by how its cuts are computed, and also after a restart."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError
from tests.planning.profiles import profile, stream
from tests.planning.test_fit import cuts_of

import transom as tm
from transom.engine.control import digests
from transom.engine.control.digests import Digests
from transom.engine.streams.cuts import JobOptions
from transom.engine.streams.feed import OUTSIDE
from transom.model.phases import Phase
from transom.planning.digest import HALF
from transom.planning.fit import Nature
from transom.planning.profile import Equipment, StreamProfile
from transom.windows.components import Arrangement

CORES, COUNTED = 4, digests._machine


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_machine", lambda streams: Equipment(CORES))


def running(name: str = "s") -> SimpleNamespace:
    query = SimpleNamespace(windows=(tm.tumbling("1 second"),), target=SimpleNamespace(limit=2_000_000))
    return SimpleNamespace(
        name=name,
        compiler=SimpleNamespace(arrangement=Arrangement()),
        options=JobOptions(),
        state=SimpleNamespace(cut=0, queries={"q": None}),
        definition=SimpleNamespace(queries=[query], feed=OUTSIDE),
    )


def of(*streams: SimpleNamespace) -> Digests:
    return Digests({each.name: each for each in streams}, 50_000, lambda: 0)  # type: ignore[arg-type]


def test_a_profile_is_made_of_what_was_measured() -> None:
    known = of(running())
    assert "0 cuts were measured" in known.known().unknown["s"]
    assert not known.known().profile.streams
    for cut in cuts_of(stream()):
        known.take(cut)
    found = known.known()
    assert not found.unknown
    assert found.profile.equipment.cores == CORES
    assert found.profile.streams["s"].limit == 2.0
    assert found.profile.streams["s"].cost(Phase.PLAN).fixed == pytest.approx(0.06, rel=0.02)


def test_another_arrangement_or_tier_is_learned_anew_and_the_old_one_is_remembered() -> None:
    one, cuts = running(), cuts_of(stream())
    known = of(one)
    for cut in cuts:
        known.take(cut)
    before = known.known().profile
    one.state.cut, one.options = 200_000, JobOptions(all_in_files=True)
    known.take(cuts[0])  # computed before, though it is told of now
    assert "0 cuts were measured" in known.known().unknown["s"]
    one.options = JobOptions()
    assert known.known().profile == before


def test_what_counts_no_more_is_forgotten_when_queries_come_and_go() -> None:
    one, now = running(), [0]
    known = Digests({one.name: one}, 50_000, lambda: now[0])  # type: ignore[dict-item]
    for number, cut in enumerate(cuts_of(stream())):
        one.state.queries = {f"q{number}": None}
        known.take(replace(cut, number=number + 1))
        one.state.cut, now[0] = number + 1, now[0] + 100 * HALF
    assert len(known._digests) <= 2


def test_a_restart_begins_with_what_was_known() -> None:
    first, cuts = of(running()), cuts_of(stream())
    for cut in cuts:
        first.take(cut)
    second = of(running())
    second.restore(first.to_json())
    assert second.known().profile == first.known().profile
    for cut in cuts[:3]:
        second.take(cut)
    assert second.known().profile == first.known().profile
    elsewhere = running()
    elsewhere.options = JobOptions(all_in_files=True)
    third = of(elsewhere)
    third.restore(first.to_json())
    assert third.known().unknown


READABLE = json.loads(profile().to_json())


@pytest.mark.parametrize(
    "kept",
    [
        {},
        None,
        {"profile": {"format": 99}, "ways": {"s": "a"}},
        {"profile": [], "ways": {}},
        {"profile": READABLE},
        {"profile": READABLE, "ways": ["s"]},
        {"profile": {**READABLE, "streams": {}}, "ways": {"s": "a"}},
        {"profile": {**READABLE, "streams": {"s": {**READABLE["streams"]["s"], "tides": 1}}}, "ways": {"s": "a"}},
    ],
)
def test_what_another_transom_wrote_and_this_one_cannot_read_is_passed_over(kept) -> None:
    known = of(running())
    known.restore(kept)
    assert known.known().unknown


def test_no_snapshot_fails_by_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> StreamProfile:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr(digests, "fit", broken)
    known = of(running())
    assert "cannot be understood (ZeroDivisionError: float division by zero)" in known.known().unknown["s"]
    assert known.to_json()["profile"]["streams"] == {}


def test_what_another_stream_feeds_is_not_known_before_that(monkeypatch: pytest.MonkeyPatch) -> None:
    child = running("child")
    monkeypatch.setattr(
        digests, "nature", lambda definition, look: Nature(after="s" if definition is child.definition else None)
    )
    known = of(running("s"), child)
    known._before["child", digests.way_of(child)] = stream()  # type: ignore[arg-type]
    assert "reads results of 's'" in known.known().unknown["child"]
    for cut in cuts_of(stream()):
        known.take(cut)
    assert known.known().profile.chain("child") == ["child", "s"]


def test_a_profile_of_a_file_is_one_to_begin_with() -> None:
    first = of(running())
    for cut in cuts_of(stream()):
        first.take(cut)
    second = of(running())
    second.begin(first.known().profile)
    assert second.known().profile == first.known().profile


def test_costs_that_changed_are_believed_and_what_was_before_is_forgotten() -> None:
    known = of(running())
    for cut in cuts_of(stream()):
        known.take(cut)
    new = stream(row=9e-6)
    *_, last = cuts_of(stream())
    known.changed("s", new, since=last.number + 1)
    assert known.known().profile.streams["s"] == replace(new, limit=2.0, after=None)
    for cut in cuts_of(stream()):  # their results took long to be visible
        known.take(cut)
    assert known.known().profile.streams["s"] == replace(new, limit=2.0, after=None)
    for cut in cuts_of(new):
        known.take(replace(cut, number=last.number + cut.number))
    found = known.known().profile.streams["s"]
    assert found.cuts > 0
    assert found.cost(Phase.MAP).each == pytest.approx(9e-6, rel=0.05)


def test_no_run_ends_by_what_was_measured_with_other_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> StreamProfile:
        raise ZeroDivisionError("float division by zero")

    known = of(running())
    assert known.cores() == CORES
    monkeypatch.setattr(digests, "fit", broken)
    monkeypatch.setattr(digests, "_machine", lambda streams: Equipment(CORES - 1))
    assert known.cores() == CORES - 1


def test_cores_that_spark_tells_late_are_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    known = of(running())
    monkeypatch.setattr(digests, "_machine", lambda streams: None)
    assert known.cores() == 1
    for cut in cuts_of(stream()):
        known.take(cut)
    monkeypatch.setattr(digests, "_machine", lambda streams: Equipment(CORES))
    assert known.cores() == CORES
    assert known.known().profile.streams["s"].cuts > 0
    assert not known._before


def test_with_other_cores_what_was_measured_becomes_what_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    known = of(running())
    for cut in cuts_of(stream()):
        known.take(cut)
    before = known.known().profile.streams["s"]
    monkeypatch.setattr(digests, "_machine", lambda streams: Equipment(CORES - 1))
    assert known.cores() == CORES - 1
    after = known.known().profile
    assert (after.equipment.cores, after.streams["s"]) == (CORES - 1, before)
    assert not known._digests


def test_cuts_that_were_under_way_when_cores_changed_say_nothing_of_either(monkeypatch: pytest.MonkeyPatch) -> None:
    one = running()
    known = of(one)
    assert known.cores() == CORES
    one.state.cut = 7
    monkeypatch.setattr(digests, "_machine", lambda streams: Equipment(CORES - 1))
    assert known.cores() == CORES - 1
    cut = cuts_of(stream())[0]
    known.take(replace(cut, number=7))
    assert not known._digests
    known.take(replace(cut, number=8))
    assert known._digests


class Java:
    """What Spark says of its cores."""

    def __init__(self, master: str, parallelism: int, total: int | None) -> None:
        self.master, self.defaultParallelism, self.total = master, parallelism, total
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(schedulerBackend=lambda: self))

    def totalCoreCount(self) -> int:
        if self.total is None:
            raise Py4JError("there is no such method")
        return self.total


@pytest.mark.parametrize(
    ("master", "parallelism", "total", "cores"),
    [
        ("local[2]", 2, None, 2),
        ("yarn", 2, 1, 1),  # Spark has two partitions at least
        ("yarn", 200, 12, 12),  # as somebody has set
        ("local-cluster[3,2,1024]", 6, 6, 6),
    ],
)
def test_cores_are_those_of_the_executors(master: str, parallelism: int, total: int | None, cores: int) -> None:
    session = SimpleNamespace(_jsparkSession=None, sparkContext=Java(master, parallelism, total))
    assert COUNTED({"s": SimpleNamespace(session=session)}) == Equipment(cores, master.startswith("local"))  # type: ignore[dict-item]


def test_without_executors_the_machine_is_the_one_before() -> None:
    session = SimpleNamespace(_jsparkSession=None, sparkContext=Java("yarn", 2, 0))
    assert COUNTED({"s": SimpleNamespace(session=session)}) is None  # type: ignore[dict-item]
