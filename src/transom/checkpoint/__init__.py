"""The state that survives a crash: a log of decisions, tables of partial aggregates, snapshots, and one writer."""

from transom.checkpoint.history import Snapshot
from transom.checkpoint.inspect import describe
from transom.checkpoint.store import Checkpoint

__all__ = ["Checkpoint", "Snapshot", "describe"]
