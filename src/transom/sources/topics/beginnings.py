"""Where a source begins to read the partitions that it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from transom.errors import SourceError
from transom.sources.topics.brokers import Place

Start: TypeAlias = "str | int | Mapping[str, Mapping[int, int]]"
""""earliest", "latest", a time in milliseconds since the epoch, or offsets by topic and partition."""


def first_offsets(
    starting: Start,
    earliest: Mapping[Place, int],
    ends: Mapping[Place, int],
    since: Callable[[Sequence[Place], str], Mapping[Place, tuple[int, int]]],
) -> dict[Place, int]:
    """Return the offset that each partition begins at.

    Args:
        starting: What the user wants. Partitions without an offset in it begin at their earliest.
        earliest: First offset that is there, for each partition that was found.
        ends: Offset after the last one, for these at least.
        since: Asks for the first offsets, each with its time, of some partitions from a time on; -1 for none.

    Raises:
        SourceError: An offset is not there, or its partition is not.
    """
    if starting == "earliest":
        return dict(earliest)
    if starting == "latest":
        return {place: ends[place] for place in earliest}
    if isinstance(starting, int):
        found = since(list(earliest), str(starting))
        return {place: ends[place] if found[place][0] < 0 else found[place][0] for place in earliest}
    assert isinstance(starting, Mapping)
    asked = {(topic, number): at for topic, of in starting.items() for number, at in of.items()}
    for place, at in asked.items():
        if place not in earliest or not earliest[place] <= at <= ends[place]:
            there = f"it has {earliest[place]} to {ends[place]}" if place in earliest else "there is no such partition"
            raise SourceError(f"kafka: {place[0]}/{place[1]} cannot begin at {at}: {there}.", "Correct `starting`.")
    return {**earliest, **asked}
