"""Few files of a store's many, made at once."""

from __future__ import annotations

from transom.engine.cluster.merges import merged_alone
from transom.engine.cluster.store import TieredStore


def compact_files(store: TieredStore, cut: int, file: str) -> None:
    """Put as few files as possible in the place of all, waiting for it."""
    merge = store.begin_compaction(cut, file)
    store.finish_compaction(merge, merged_alone(store.executors, merge))
