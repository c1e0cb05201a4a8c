"""Parts of topics in a task of a cut: ranges of offsets, whose payloads are lines of JSON."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from transom.engine.execution.splits import Asked, Gathering, plan_of
from transom.kafka.consuming import Settings, Taken, TopicRange, Unread, reader
from transom.native.lines import LineReader
from transom.native.messages import rows_of_messages
from transom.native.values import UncertainError
from transom.sources.base import CORRUPT, Unit

_MICROS = 1_000


@dataclass(frozen=True)
class TopicPart:
    """Offsets that are all of a unit of the source, or a part of it."""

    of: Unit
    range: TopicRange
    whole: bool

    @property
    def unit(self) -> str:
        """The name of the unit."""
        return self.of.name


@dataclass(frozen=True)
class Wanted:
    """What tasks need to know of topics besides their parts."""

    consumer: Settings
    arrivals: bool
    """Whether somebody asks when messages arrived."""
    skips_tombstones: bool
    """Whether messages without a value are no rows."""


def parts_of_range(unit: Unit, of: TopicRange, piece: int) -> list[TopicPart]:
    """Return the parts in which a range is read, of about `piece` offsets at most.

    >>> of = parts_of_range(Unit("t/0 offsets 5 to 14"), TopicRange("t", 0, 5, 15), 4)
    >>> [(part.range.begin, part.range.end) for part in of]
    [(5, 8), (8, 11), (11, 15)]
    """
    offsets = of.end - of.begin
    count = max(1, -(-offsets // piece))
    edges = [of.begin + offsets * place // count for place in range(count + 1)]
    return [
        TopicPart(unit, TopicRange(of.topic, of.partition, begin, end), count == 1)
        for begin, end in itertools.pairwise(edges)
    ]


def of_ranges(wanted: Wanted, asked: Asked, parts: Sequence[TopicPart]) -> Iterator[tuple[TopicPart, Gathering | None]]:
    """Yield what is made of the messages of parts; None where Spark has to judge.

    Raises:
        SourceAwayError: The brokers do not answer.
        DefinitionError: The client does not take its options.
        ImportError: It is not installed here.
    """
    for some in _rounds(parts):
        gathered = {number: asked.gathering() for number in range(len(some))}
        taking = reader(wanted.consumer)
        with closing(taking.read([part.range for part in some], wanted.arrivals)) as blocks:
            for found in blocks:
                if isinstance(found, Unread):
                    gathered.pop(found.number, None)
                elif found.number in gathered:
                    try:
                        _take(gathered[found.number], found, some[found.number], wanted, _lines(asked.plan))
                    except UncertainError:
                        del gathered[found.number]
                        taking.leave(found.number)
        yield from ((part, gathered.get(number)) for number, part in enumerate(some))


def _take(mine: Gathering, found: Taken, part: TopicPart, wanted: Wanted, lines: LineReader) -> None:
    """Take messages.

    Raises:
        UncertainError: Spark has to judge them.
    """
    values = found.values
    mine.read += sum(map(len, filter(None, values)))
    arrived = np.array(found.stamps, np.int64) * _MICROS if wanted.arrivals else None
    if wanted.skips_tombstones and None in values:
        if arrived is not None:
            arrived = arrived[[value is not None for value in values]]
        values = [value for value in values if value is not None]
        if not values:
            return
    mine.take(rows_of_messages(lines, values), part.of.partition, arrived)


@functools.lru_cache(4)
def _lines(plan: bytes) -> LineReader:
    made = plan_of(plan)
    return LineReader(made.columns, (CORRUPT,), made.utc, made.wanted)


def _rounds(parts: Sequence[TopicPart]) -> list[list[TopicPart]]:
    """Return parts in groups with one of each partition at most, as a consumer reads them."""
    rounds: list[list[TopicPart]] = []
    seen: dict[tuple[str, int], int] = {}
    for part in parts:
        place = part.range.topic, part.range.partition
        number = seen[place] = seen.get(place, -1) + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(part)
    return rounds
