"""Executors that are asked for and given back, with a cluster manager that takes its time; without Spark."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.planned_world import AtOnce, Cluster

from transom.engine.loop import executors as module
from transom.engine.loop.executors import Executors, make_executors
from transom.engine.placed.placed import ExecutorInfo
from transom.errors import DefinitionError
from transom.model.time import ManualClock
from transom.placement.grants import Grant
from transom.planning.fleet import Fleet

SECOND = 1_000_000


class Groups:
    """Key groups of a stream, two at each executor in the beginning."""

    def __init__(self, homes: dict[str, int]) -> None:
        self.homes, self.emptied = homes, frozenset[str]()

    @property
    def standing(self) -> Any:
        return SimpleNamespace(groups=self.homes)

    def empty(self, executors: Collection[str]) -> None:
        self.emptied = frozenset(executors)


class Run:
    """Executors of an application, of which there were some at its start."""

    def __init__(
        self, first: int = 2, most: int = 4, in_files: bool = True, grant: Grant | None = None, **cluster: Any
    ) -> None:
        self.clock, self.notes = ManualClock(), list[str]()
        self.cluster = Cluster(self.clock, first, **cluster)
        self.groups = Groups({str(number): 2 for number in range(first)} if in_files else {})
        stores = [SimpleNamespace(store=SimpleNamespace(parts=["one"] if in_files else []))]
        streams: Any = {"s": SimpleNamespace(state=SimpleNamespace(executors=self.groups, stores=stores))}
        self.threads: Any = AtOnce()
        self.executors = Executors(
            streams, most, self.cluster, self.clock, self.notes.append, self.threads, grant or Grant()
        )
        self.pass_seconds(3)

    def pass_seconds(self, seconds: int) -> Run:
        for _ in range(seconds):
            self.clock.advance(SECOND)
            self.executors.look()
        return self

    def there(self) -> list[str]:
        return [one.id for one in self.cluster.there()]


def test_what_there_is_is_counted_and_nothing_is_asked_for() -> None:
    run = Run().pass_seconds(60)
    assert run.executors.fleet == Fleet(asked=2, least=2, most=4, cores=1)
    assert run.cluster.asked == []
    run.executors.close()
    assert run.cluster.asked == run.cluster.ended == []


def test_those_that_register_late_were_there_from_the_start() -> None:
    run = Run(1)
    run.cluster.come(2)
    run.pass_seconds(10)
    fleet = run.executors.fleet
    assert fleet is not None
    assert (fleet.asked, fleet.least) == (3, 3)


def test_executors_are_asked_for_once_and_come() -> None:
    run = Run()
    run.executors.ask(4)
    run.executors.ask(4)
    run.pass_seconds(60)
    assert run.cluster.asked == [4]
    assert len(run.there()) == 4
    assert run.executors.fleet == Fleet(asked=4, least=2, most=4, cores=1, gives_back=False)
    assert run.notes == []


def test_one_is_given_back_when_its_groups_have_moved_and_its_tasks_have_ended() -> None:
    run = Run(3, 3)
    run.executors.ask(2)
    run.pass_seconds(20)
    assert run.groups.emptied == {"2"}
    assert run.cluster.closed == run.cluster.ended == []
    run.groups.homes = {"0": 3, "1": 3}
    run.cluster.tasks["2"] = 1
    run.pass_seconds(5)
    assert run.cluster.closed == ["2"]
    assert run.cluster.ended == []
    run.cluster.tasks.clear()
    run.pass_seconds(5)
    assert run.cluster.ended == ["2"]
    assert run.there() == ["0", "1"]
    assert run.cluster.asked == [2], "before it was ended, or another one would have come in its place"
    assert run.groups.emptied == set()


def test_partials_on_the_driver_have_nothing_to_move() -> None:
    run = Run(3, 3, in_files=False)
    run.groups.homes = {"2": 6}  # as it was when the executors had them
    run.executors.ask(1)
    run.pass_seconds(10)
    assert run.there() == ["0"]


def test_one_that_is_emptied_stays_when_more_are_wanted_again() -> None:
    run = Run(3, 3)
    run.executors.ask(2)
    run.pass_seconds(5)
    assert run.groups.emptied == {"2"}
    run.executors.ask(3)
    run.pass_seconds(5)
    assert run.groups.emptied == set()
    assert run.cluster.closed == []
    assert run.cluster.asked == [2, 3]


def test_the_end_of_a_run_gives_back_what_was_asked_for() -> None:
    run = Run()
    run.executors.ask(4)
    run.pass_seconds(60)
    run.executors.close()
    assert run.cluster.asked == [4, 2]
    assert len(run.there()) == 2
    assert {"0", "1"} <= set(run.there()), "those that came last go"


def test_what_cannot_be_given_back_at_the_end_is_told(caplog: pytest.LogCaptureFixture) -> None:
    run = Run()
    run.executors.ask(4)
    run.pass_seconds(60)

    def refuse(total: int) -> bool:
        raise RuntimeError("the cluster is away")

    run.cluster.ask = refuse  # type: ignore[method-assign]
    run.executors.close()
    assert "may stay until the Spark session ends: RuntimeError: the cluster is away" in caplog.text


def test_executors_that_do_not_come_are_told_once() -> None:
    run = Run(room=3)
    run.executors.ask(4)
    run.pass_seconds(50)
    assert run.notes == []
    run.pass_seconds(600)
    assert run.notes == [
        "4 executors were asked for; for a minute there have been 3. Settings are for these until others come."
    ]
    fleet = run.executors.fleet
    assert fleet is not None
    assert (fleet.asked, fleet.room) == (4, 3)
    run.cluster.room = 4
    run.pass_seconds(20)
    fleet = run.executors.fleet
    assert fleet is not None
    assert fleet.room is None


def test_what_spark_refuses_is_told_once_and_asked_for_again() -> None:
    run = Run(takes=False)
    run.executors.ask(4)
    run.pass_seconds(20)
    assert run.notes == ["The cluster manager did not take the request for 4 executors."]
    run.cluster.takes = True
    run.pass_seconds(20)
    assert len(run.there()) == 4


def test_no_run_ends_by_an_error_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    with monkeypatch.context() as broken:
        broken.setattr(run.cluster, "there", lambda: 1 / 0)
        run.pass_seconds(60)
        run.executors.ask(3)
        run.pass_seconds(60)
        assert len(run.notes) == 1
        assert "Spark says: ZeroDivisionError" in run.notes[0]
    run.pass_seconds(60)
    assert len(run.there()) == 3


def test_the_loop_waits_for_no_answer() -> None:
    run = Run()
    run.threads.waits = []
    run.executors.ask(4)
    run.pass_seconds(60)
    ((made, call),) = run.threads.waits
    assert run.cluster.asked == []
    run.threads.waits = None
    made.set_result(call())
    run.pass_seconds(60)
    assert len(run.there()) == 4


def test_more_than_the_most_that_were_there_stay() -> None:
    run = Run(3, 2).pass_seconds(20)
    assert run.executors.fleet == Fleet(3, 3, 3, 1)
    assert run.notes == ["max_executors is 2, and 3 executors stay in any case."]


def test_while_there_is_no_executor_nothing_is_planned() -> None:
    run = Run(0)
    assert run.executors.fleet is None
    run.cluster.come(2)
    run.pass_seconds(10)
    assert run.executors.fleet == Fleet(2, 2, 4, 1)


STANDALONE = "spark://head:7077"


def session(master: str, name: str = "app-1", **conf: str) -> Any:
    conf = {f"spark.{key.replace('_', '.')}": value for key, value in conf.items()}
    context = SimpleNamespace(master=master, applicationId=name, getConf=lambda: conf)
    return SimpleNamespace(sparkContext=context)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_local_mode_has_none_to_ask_for(master: str) -> None:
    notes: list[str] = []
    assert make_executors(session(master), {}, 4, ManualClock(), notes.append) is None
    assert notes == ["max_executors is of no use here: in local mode there are no executors to ask for."]


def test_none_are_given_back_before_their_number_has_been_the_same_for_five_minutes() -> None:
    run = Run()
    assert run.executors.spare() is None
    run.executors.ask(4)
    run.pass_seconds(299)
    fleet = run.executors.fleet
    assert fleet is not None
    assert not fleet.gives_back
    assert run.executors.spare() is None
    run.pass_seconds(2)
    assert run.executors.fleet == Fleet(4, 2, 4, 1)
    assert run.executors.spare() == "the number of executors has been 4 for 5 minutes"
    run.executors.ask(2)
    run.pass_seconds(301)
    assert run.executors.spare() is None, "so many were there at the start"


def test_one_application_of_a_session_sets_the_number() -> None:
    one = make_executors(session("yarn"), {}, 4, ManualClock(), print)
    assert one is not None
    with pytest.raises(DefinitionError, match="another application in this Spark session sets the number"):
        make_executors(session("yarn"), {}, 4, ManualClock(), print)
    other = make_executors(session("yarn", "app-2"), {}, 4, ManualClock(), print)
    assert other is not None
    one.close()
    again = make_executors(session("local-cluster[2,1,1024]"), {}, 4, ManualClock(), print)
    assert again is not None
    again.close()
    other.close()
    assert not module._setters


def test_executors_with_few_cores_count_for_all() -> None:
    run = Run()
    run.executors._there = [ExecutorInfo("0", "h", 4), ExecutorInfo("1", "h", 2)]
    fleet = run.executors.fleet
    assert fleet is not None
    assert fleet.cores == 2


def test_a_cluster_that_gives_all_is_left_with_as_many_as_the_settings_say() -> None:
    run = Run(4, 4, in_files=False, grant=Grant(gives_all=True, stated=1)).pass_seconds(20)
    assert run.notes == ["The cluster gave 4 executors, and spark.executor.instances is 1: the others are given back."]
    assert run.cluster.asked == [1]
    assert run.there() == ["0"]
    assert run.executors.fleet == Fleet(1, 1, 4, 1, gives_back=False)
    run.executors.ask(3)
    run.pass_seconds(60)
    run.executors.close()
    assert run.cluster.asked == [1, 3, 1]
    assert len(run.there()) == 1


def test_a_cluster_that_gives_all_gives_no_more_than_may_be_asked_for() -> None:
    run = Run(3, 2, in_files=False, grant=Grant(gives_all=True)).pass_seconds(20)
    assert run.notes == ["The cluster gave 3 executors, and max_executors is 2: the others are given back."]
    assert run.there() == ["0", "1"]


def test_of_all_that_a_cluster_gives_what_is_not_needed_goes_and_the_end_of_a_run_leaves_them_as_they_were() -> None:
    run = Run(3, 4, in_files=False, grant=Grant(gives_all=True)).pass_seconds(200)
    assert run.executors.fleet == Fleet(3, 1, 4, 1, gives_back=False), "what is known of costs is rough at first"
    assert run.executors.spare() is None
    run.pass_seconds(120)
    assert run.executors.fleet == Fleet(3, 1, 4, 1)
    assert run.executors.spare() == "the number of executors has been 3 for 5 minutes"
    assert run.cluster.asked == []
    run.executors.ask(1)
    run.pass_seconds(20)
    assert run.there() == ["0"]
    run.executors.close()
    assert run.cluster.asked == [1, 3]


def test_executors_that_a_cluster_gives_late_are_too_many_as_well() -> None:
    run = Run(1, 4, in_files=False, grant=Grant(gives_all=True, stated=2))
    run.cluster.come(2)
    run.pass_seconds(30)
    assert run.cluster.asked == [2]
    assert len(run.there()) == 2


def test_why_a_standalone_cluster_gives_one_for_each_worker_is_told() -> None:
    run = Run(1, 4, grant=Grant(gives_all=True, whole_workers=True), room=1)
    run.executors.ask(4)
    run.pass_seconds(80)
    assert run.notes[0].endswith("Without spark.executor.cores a standalone cluster gives one for each worker.")


def test_no_more_are_asked_for_than_the_settings_of_spark_allow() -> None:
    notes: list[str] = []
    made = make_executors(session(STANDALONE, cores_max="2", executor_cores="1"), {}, 4, ManualClock(), notes.append)
    assert made is not None
    assert made.most == 2
    (note,) = notes
    assert note.startswith("spark.cores.max allows 2 executors, and max_executors is 4")
    assert "set spark.executor.instances instead" in note
    made.close()
