"""Any sequence of writes, crashes and openings: what was synced is there, in order, and nothing else."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from checkpoint_helpers import reopen, segments, table
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

NAMES = st.sampled_from(["a", "b", "a.b/c"])
NUMBERS = st.lists(st.integers(0, 99), max_size=3)


class CheckpointMachine(RuleBasedStateMachine):
    """The model is lists and dicts; a crash keeps what was synced and any part of the rest of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="transom-checkpoint-"))
        self.copies = 0
        self.replaced = []

    @initialize()
    def create(self):
        self.path = self.root / "0"
        self.checkpoint = reopen(self.path)
        assert self.checkpoint.is_new
        self.count = 0
        self.records = []
        self.durable = 0
        self.durable_bytes = segments(self.path)[-1].stat().st_size
        self.tables = {}
        self.snapshot = None

    @rule(sync=st.booleans(), text=st.text(max_size=20))
    def append(self, sync, text):
        self.count += 1
        record = {"n": self.count, "text": text}
        self.checkpoint.append(record, sync)
        self.records.append(record)
        if sync:
            self.all_is_durable()

    def all_is_durable(self):
        self.durable = len(self.records)
        self.durable_bytes = segments(self.path)[-1].stat().st_size

    @rule(name=NAMES, numbers=NUMBERS)
    def write_tables(self, name, numbers):
        tables = {"x": table(*numbers), "y": table()}
        self.tables[name] = (tables, self.checkpoint.write_tables(name, tables))

    @rule(numbers=NUMBERS)
    def write_snapshot(self, numbers):
        self.snapshot = ({"upto": self.count}, {"x": table(*numbers)})
        self.checkpoint.write_snapshot(*self.snapshot)
        self.records, self.tables = [], {}
        self.all_is_durable()

    @rule(fraction=st.floats(0, 1))
    def crash(self, fraction):
        """Lose any part of what was not synced; go on with what is left."""
        self.copies += 1
        copy = self.root / str(self.copies)
        shutil.copytree(self.path, copy)
        self.checkpoint.close()
        self.path = copy
        last = segments(copy)[-1]
        size = last.stat().st_size
        with open(last, "r+b") as file:
            file.truncate(self.durable_bytes + round(fraction * (size - self.durable_bytes)))
        self.open_again()

    @rule()
    def close_and_open(self):
        self.checkpoint.close()
        self.durable = len(self.records)
        self.open_again()

    @rule()
    def take_over(self):
        """The old writer stays; what it appends later must never count."""
        old = self.checkpoint
        self.durable = len(self.records)
        self.open_again()
        self.replaced.append(old)

    @precondition(lambda self: self.replaced)
    @rule(which=st.integers(0, 5))
    def append_late(self, which):
        self.replaced[which % len(self.replaced)].append({"late": True}, sync=False)

    def open_again(self):
        self.checkpoint = reopen(self.path, lock=False)
        found = self.checkpoint.records
        assert found == self.records[: len(found)]
        assert len(found) >= self.durable
        self.records = list(found)
        self.all_is_durable()
        if self.snapshot is None:
            assert self.checkpoint.snapshot is None
        else:
            assert self.checkpoint.snapshot is not None
            assert self.checkpoint.snapshot.state == self.snapshot[0]
            assert dict(self.checkpoint.snapshot.tables) == self.snapshot[1]
        assert self.checkpoint.is_new == (self.snapshot is None and not found)

    @invariant()
    def tables_are_there(self):
        for name, (tables, written) in getattr(self, "tables", {}).items():
            assert self.checkpoint.read_tables(name, written) == tables

    def teardown(self):
        for each in [*self.replaced, getattr(self, "checkpoint", None)]:
            if each:
                each.close()
        shutil.rmtree(self.root)


CheckpointMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestCheckpointMachine = CheckpointMachine.TestCase
