"""Sinks that come and go at a restart: results that wait for a former one go to the one that takes its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from transom.engine.changes.records import Register
from transom.engine.loop.delivery import ResultBatch
from transom.sinks.outlets import successors


def rerouted(
    batches: Sequence[ResultBatch], register: Register, sinks: Mapping[str, Sequence[str]]
) -> tuple[list[ResultBatch], bool, list[str]]:
    """Give what waits for the sinks that the checkpoint knows to those of the job, which may be others.

    Args:
        batches: Results that not all sinks are known to have.
        register: The queries that the checkpoint knows; it has their new sinks afterwards.
        sinks: Keys of the sinks that queries of the job have, as far as the checkpoint knows these.

    Returns:
        The results with the sinks that they wait for now, whether there are other sinks, and news for people.

    Raises:
        JobChangedError: It cannot be told which sink takes what.
    """
    left, notes, changed = list(batches), [], False
    for name, new in sinks.items():
        query = register.known[name]
        if query.sinks == tuple(new):
            continue
        mine = [batch for batch in left if batch.query == name]
        into = successors(name, query.sinks, new, {key for batch in mine for key in batch.sinks or ()})
        moved = [replace(batch, sinks=tuple(into[key] for key in batch.sinks or () if key in into)) for batch in mine]
        left = [batch for batch in left if batch.query != name] + [batch for batch in moved if batch.sinks]
        register.known[name] = replace(query, sinks=tuple(new))
        changed = True
        notes += _news(name, query.sinks, new, into, mine)
    return left, changed, notes


def _news(
    name: str, old: Sequence[str], new: Sequence[str], into: Mapping[str, str], waiting: Sequence[ResultBatch]
) -> list[str]:
    notes = []
    for key in old:
        if key not in into:
            dropped = sum(key in (batch.sinks or ()) for batch in waiting)
            notes.append(
                f"{name}: its sink {key} is not in the job any more"
                + (f"; {dropped} results that waited for it are dropped." if dropped else ".")
            )
    for key in new:
        if key not in into.values():
            notes.append(f"{name}: its sink {key} is new; it gets the results from here on.")
    return notes
