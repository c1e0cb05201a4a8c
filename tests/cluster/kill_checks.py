"""Rounds of kill -9 of executors, one or all, under collections and under windows; see `cluster_checks.py`."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
from executors import PARTITIONS, words
from pyspark.sql import SparkSession
from tier_checks import plain_windows, windows

import transom as tm
from transom.engine.placed.placed import Tasks

KEYS, ROWS = 1_000, 20_000
"""Of a dataset (`words`)."""


class Killer:
    """Kills executors of an application at random."""

    def __init__(self, spark: SparkSession, seed: int) -> None:
        self._application = str(spark.sparkContext.applicationId)
        self.random = random.Random(seed)
        self.kills = 0

    def _processes(self) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                command = path.read_bytes()
                if b"CoarseGrainedExecutorBackend" in command and self._application.encode() in command:
                    found.append(int(path.parent.name))
        return found

    def strike(self, every: bool) -> None:
        """Kill one executor, or all of them."""
        alive = self._processes()
        for process in alive if every or not alive else [self.random.choice(alive)]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                self.kills += 1

    def during(self, every: bool, actions: Sequence[Callable[[], object]]) -> None:
        """Do some things at once, each on a thread, and strike as one of their jobs is given its executors or begins.

        Which one is random. If there are fewer, it strikes at the end.
        """
        steps, blows = itertools.count(1), list[threading.Thread]()
        when = self.random.randrange(1, 7)

        def before(method: Callable[..., Any]) -> Callable[..., Any]:
            def called(*arguments: Any, **options: Any) -> Any:
                if next(steps) == when:
                    blows.append(threading.Thread(target=self.strike, args=[every]))
                    blows[0].start()
                return method(*arguments, **options)

            return called

        threads = [threading.Thread(target=action) for action in actions]
        run, located = Tasks.run, Tasks._located
        with patch.object(Tasks, "run", before(run)), patch.object(Tasks, "_located", before(located)):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if not blows:
            self.strike(every)
        for blow in blows:
            blow.join()


def collection_kills(spark: SparkSession, rounds: int = 12, seed: int = 0) -> dict[str, Any]:
    """Executors are killed before and during questions and `add`; every question is to be answered, and right."""
    killer = Killer(spark, seed)
    wrong: list[str] = []
    answers = 0

    def same(tables: list[pa.Table]) -> pa.Table:
        return tables[0]

    with (
        tm.Collection(spark, "kills", ["key"], PARTITIONS, patience="5 minutes") as added,
        tm.Collection(spark, "kept", ["key"], PARTITIONS, namespace="kills") as derived,
    ):

        def ask() -> None:
            nonlocal answers
            try:
                view = killer.random.choice([added[0], added[1], derived[0]])
                found = view.aggregate(["key"], {"text": "count"})
                if (len(found), pc.sum(found["text_count"]).as_py()) != (KEYS, ROWS):
                    wrong.append(f"{len(found)} keys")
                answers += 1
            except Exception as error:
                wrong.append(f"{type(error).__name__}: {error}"[:300])

        def add() -> None:
            try:
                added.add(2, words(spark, 2))
                added.drop(2)
            except Exception as error:
                wrong.append(f"add: {type(error).__name__}: {error}"[:300])

        for number in range(2):
            added.add(number, words(spark, number))
        derived.derive(0, same, [added[0]])
        for number in range(rounds):
            every = killer.random.random() < 0.4
            if number % 3 == 0:
                killer.strike(every)
            elif number % 3 == 1:
                killer.during(every, [ask, ask])
            else:
                killer.during(every, [add])
            ask()
    return {"kills": killer.kills, "wrong": wrong, "answers": answers}


def window_kills(spark: SparkSession, runs: int = 3, seed: int = 0) -> dict[str, Any]:
    """Executors are killed three times in each run of an application whose partials they hold: one, one, all."""
    killer, plain = Killer(spark, seed), plain_windows(spark)
    same = []
    for _ in range(runs):
        moments = dict(zip(sorted(killer.random.sample(range(1, 8), 3)), (False, False, True), strict=True))

        def strike(commits: int, moments: dict[int, bool] = moments) -> None:
            if commits in moments:
                killer.strike(moments[commits])

        same.append(windows(spark, "cluster", strike)[0] == plain)
    return {"kills": killer.kills, "same": same, "results": runs * len(plain)}
