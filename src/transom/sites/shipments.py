"""A flow that leaves a site: what the log says of it and what a run makes of it, and what its parcels say."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from transom.engine.spark.cutstats import CutStats
from transom.engine.streams.sending import CutRange, FlowSender, query_of
from transom.engine.streams.stream import RunningStream
from transom.model.time import Micros
from transom.sites.flows import FlowDefinition
from transom.widearea.bodies import to_body
from transom.widearea.parcels import Delays, PartitionProgress, RowCounts
from transom.widearea.senders import Sender


@dataclass(frozen=True)
class Shipment:
    """A flow that leaves here."""

    flow: FlowDefinition
    stream: RunningStream
    gathered: FlowSender
    """What the log says of it."""
    sender: Sender
    """What this run makes of it."""

    @property
    def failure(self) -> str | None:
        """Why nothing is made of it any more, if that is so."""
        return self.stream.state.queries[query_of(self.flow.name)].failure

    def lacks(self, told: bool, hears: bool) -> str:
        """Return what is not known to have arrived, for people; empty if all has.

        Args:
            told: Whether the destination was told that this run ends, or is not to be.
            hears: Whether the destination is connected.
        """
        flow = self.flow.name
        there = self.flow.destination if hears else f"{self.flow.destination}, which is not connected,"
        if self.gathered.waits:
            return f"{there} has not said that it has cut {self.gathered.committed} of {flow!r}"
        if self.sender.unacked:
            return f"{there} has not said that it has heard the last news of {flow!r}"
        return "" if told else f"{there} could not be told yet that {flow!r} ends"


def news_of(stream: RunningStream, tick: int) -> Any:
    """Return what destinations have to know of a stream besides its rows and failures, to be compared."""
    policy = stream.definition.policy
    lengths = [-1 if length is None else length for length in stream.seen.idle]
    idle = [policy.idle_after is not None and length >= policy.idle_after for length in lengths]
    passes = policy.close_on_idle is not None and min(lengths, default=-1) >= policy.close_on_idle
    return idle, passes and tick, stream.state.watermark.injected


def beat_of(stream: RunningStream, now: Micros) -> int | None:
    """Return a number that changes whenever destinations have to hear of this site, even if there are no news."""
    after = stream.definition.policy.absent_after
    return None if after is None else now // max(1, after // 4)


def content_of(
    stream: RunningStream, flow: FlowDefinition, made: CutRange | None, gathered: FlowSender
) -> dict[str, Any]:
    """Return what a part says, and the body of its parcel.

    Args:
        stream: Of the flow.
        flow: The flow.
        made: The cuts that it brings; None for progress alone.
        gathered: What the log says of the flow.
    """
    stats = CutStats(newest=gathered.newest) if made is None else made.stats
    counts = (stats.rows, stats.null_time, stats.ahead, stats.corrupt, stats.out_of_range)
    times = itertools.zip_longest(stats.newest, stream.seen.idle or [None] * len(stream.source.partitions))
    failure = stream.state.queries[query_of(flow.name)].failure
    return {
        "body": b"" if made is None else to_body(made.table),
        "partitions": tuple(PartitionProgress(*each) for each in times),
        "arrived": None if made is None else made.arrived,
        "counts": RowCounts(*counts),
        "delays": Delays(stats.delays.records, stats.delays.total, stats.delays.spread),
        "failed": {} if failure is None else {query.name: failure for query in flow.queries},
        "injected": stream.state.watermark.injected,
    }
