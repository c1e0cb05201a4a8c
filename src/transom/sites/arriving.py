"""The source of a flow at its destination: partials that sites have made of their rows, as parcels bring them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from transom.engine.spark.cutstats import CutStats
from transom.engine.state.absence import Heard
from transom.engine.streams.partialsource import Brought
from transom.errors import SiteError, SourceError, SourceLostError
from transom.model.time import MAX_TIME, MICROS_PER_SECOND, MIN_TIME, Clock, Micros
from transom.scheduling.arrivals import DelayMoments
from transom.sites.inbox import Entry, Inbox
from transom.sources.base import ARRIVAL, PARTITION, Cut, Mark, Offset, OwnRows, Waiting
from transom.sources.schemas import position
from transom.storage.places import Place
from transom.widearea.bodies import from_body
from transom.widearea.parcels import FlowName, Parcel, Part, Standing
from transom.widearea.topology import Site

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

REST: Micros = MICROS_PER_SECOND
"""So long a parcel may wait for those of other sites, if it completes no window: each cut costs as much as a parcel,
and the sites' ticks are spread."""
LOOK: Micros = MICROS_PER_SECOND
"""More than this between two looks is no silence of others: nobody listened."""


class ArrivingSource(OwnRows):
    """Partials of one flow; an offset is the position of a parcel in the inbox.

    Its partitions are those of the sources at all sites, each with a watermark of its own. A site that has not been
    heard yet has one, so that nothing closes without it.

    Args:
        flow: The flow.
        sites: Those that have rows for it.
    """

    brings_partials = True

    def __init__(self, flow: FlowName, sites: Sequence[Site]) -> None:
        self.flow = flow
        self.sites = tuple(sites)
        self._heard: dict[Site, Part] = {}
        """The newest part of each site, of those that came in this run."""
        self.once = False
        """Whether this run ends with the rows: a site that has said the same of its own then has said all."""
        self._waited: Micros = 0
        """For how long it was listened in this run."""
        self._looked: Micros = 0
        """When it was listened last, monotonic."""
        self._heard_at: dict[Site, Micros] = {}
        """How long it had been listened when something came of each site."""
        self._left_out: frozenset[Site] = frozenset()
        self._front = Front()
        self._rests_at: tuple[Offset | None, Micros] = (None, 0)
        """From where on parcels wait for more, and since when."""
        self._clock: Clock
        self._inbox: Inbox

    # ---- what comes

    @property
    def inbox(self) -> Inbox:
        """The parcels that have come."""
        return self._inbox

    def standings(self) -> list[Standing]:
        """Return where the flow stands with each site."""
        return self._inbox.standings()

    @property
    def anew(self) -> list[Site]:
        """The sites of which rows were lost, and no row has come since."""
        return [site for site, part in self._inbox.known.last.items() if part.anew and part.empty]

    def add(self, parcel: Parcel) -> None:
        """Take a parcel, durably.

        Raises:
            CheckpointError: It cannot be written.
        """
        self._inbox.append(parcel)
        self._heard.update({part.site: part for part in parcel.parts})

    def came(self, sites: Iterable[Site]) -> None:
        """Take note that something has come of some sites, whether or not it is taken."""
        self._heard_at.update(dict.fromkeys(sites, self._waited))

    def listened(self, now: Micros) -> None:
        """Take note that all was looked at that came until a moment, monotonic time."""
        self._waited += min(LOOK, now - self._looked)
        self._looked = now

    def heard(self, offset: Offset) -> Heard:
        """Return what is known of the sites, see `transom.engine.streams.partialsource.PartialSource`."""
        silence = {site: self._waited - at for site, at in self._heard_at.items()}
        silence.update(dict.fromkeys((part.site for part in self._parts(offset)), 0))
        if self.once:
            silence.update(dict.fromkeys((site for site, part in self._heard.items() if part.ended), 0))
        return Heard([site for site, _ in self._inbox.known.partitions], silence, self._waited)

    def leave_out(self, sites: Collection[Site]) -> None:
        """Take note of the sites that are left out and silent in this run."""
        self._left_out = frozenset(sites)

    def waiting_bytes(self, offset: Offset) -> int:
        """Return the bytes of partials that lie behind an offset."""
        return sum(entry.nbytes for entry in self._inbox.between(position(offset), self._inbox.newest))

    def rests(self, offset: Offset) -> bool:
        """Tell whether what lies behind an offset completes nothing, and the first of it has come just now."""
        now = self._clock.monotonic()
        if self._rests_at[0] != offset:
            self._rests_at = (offset, now)
        if now - self._rests_at[1] >= REST:
            return False
        self._front.take(self._inbox.between(self._front.position, position(offset)))
        parts = self._parts(offset)
        if any(part.anew or part.ended or part.failed or part.injected is not None for part in parts):
            return False
        sites = [site for site in self.sites if site not in self._left_out]
        return self._front.least(sites, parts) <= self._front.least(sites)

    # ---- partials, see `transom.engine.streams.partialsource.PartialSource`

    def partials(self, start: Offset, end: Offset) -> list[Brought]:
        """Return what came in (start, end]."""
        return [self._brought(entry) for entry in self._inbox.between(position(start), position(end))]

    def _brought(self, entry: Entry) -> Brought:
        parts = entry.parcel.parts
        newest: list[Micros | None] = [None] * len(self.partitions)
        for part in parts:
            for number, progress in enumerate(part.partitions):
                newest[self._index(part.site, number)] = progress.newest
        stats = CutStats(newest=tuple(newest))
        for part in parts:
            counts, delays = part.counts, DelayMoments(*part.delays)
            stats += CutStats(counts.rows, (), *counts[1:], delays=delays)
        return Brought(
            tuple((part.site, part.incarnation, part.after, part.upto) for part in parts),
            stats,
            self._table(entry),
            {query: f"at {part.site}: {why}" for part in parts for query, why in part.failed.items()},
            any(part.anew for part in parts),
        )

    def _table(self, entry: Entry) -> pa.Table | None:
        try:
            return from_body(self._inbox.body(entry))
        except SiteError as error:
            raise SourceLostError(error.message, error.remedy) from error

    def newest(self) -> list[Micros | None]:
        """Return the newest event time of each partition in all that came; None before the first."""
        known = self._inbox.known
        told = {site: part.partitions for site, part in known.last.items()}
        return [
            told[site][number].newest if number < len(told.get(site, ())) else None for site, number in known.partitions
        ]

    def idle(self, offset: Offset) -> list[Micros | None]:
        """Return for how long each partition has been empty, as its site says."""
        waits = {part.site for part in self._parts(offset) if not part.empty}
        found: list[Micros | None] = []
        for site, number in self._inbox.known.partitions:
            heard = self._heard.get(site)
            known = heard is not None and site not in waits and number < len(heard.partitions)
            found.append(heard.partitions[number].idle if heard is not None and known else None)
        return found

    def _parts(self, start: Offset, end: Offset | None = None) -> list[Part]:
        last = self._inbox.newest if end is None else position(end)
        return [part for entry in self._inbox.between(position(start), last) for part in entry.parcel.parts]

    def _index(self, site: Site, number: int) -> int:
        return self._inbox.known.partitions[site, number]

    # ---- the source, see `transom.sources.base.Source`

    @property
    def schema(self) -> StructType:
        """The columns of `read`: those of partials; none before the first of them."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._arrow(), prefer_timestamp_ntz=True)

    def _arrow(self) -> pa.Schema:
        for entry in self._inbox.between(0, self._inbox.newest):
            if entry.nbytes and (table := self._table(entry)) is not None:
                return table.schema.remove_metadata()
        return pa.schema([])

    @property
    def partitions(self) -> Sequence[str]:
        """Site and number of each partition of the sources."""
        return [f"{site}/{number}" for site, number in self._inbox.known.partitions]

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        return f"partials of {self.flow} from {', '.join(self.sites)}"

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Read what has come.

        Raises:
            SourceError: Partials of a site are there that has no rows for the flow any more.
            CheckpointError: The inbox is damaged, or cannot be read.
        """
        self._clock, self._heard, self._heard_at = clock, {}, {}
        self._waited, self._looked, self._left_out = 0, clock.monotonic(), frozenset()
        self._front = Front()
        self._rests_at = (None, 0)
        self._inbox = Inbox(self.flow, directory, self.sites)
        gone = sorted({site for site, _ in self._inbox.known.partitions}.difference(self.sites))
        if gone:
            raise SourceError(
                f"The flow {self.flow!r} has partials of {', '.join(map(repr, gone))}, which is no source of it any "
                "more: its windows would wait for that site for ever.",
                "Put the site back into the topology, or give all sites new checkpoints.",
            )

    def start(self) -> Offset:
        """Return the offset before the first parcel."""
        return 0

    def latest(self) -> Offset:
        """Return the position of the newest parcel."""
        return self._inbox.newest

    def mark(self, offset: Offset) -> Mark:
        """Return None: each parcel has a checksum, and is at its place for ever."""
        return None

    def cut(self, start: Offset, max_rows: int) -> Cut:
        """Return the end of a piece of parcels that were made of at most `max_rows` rows, or of one parcel."""
        end, rows = position(start), 0
        for entry in self._inbox.between(end, self._inbox.newest):
            more = _rows(entry)
            if rows and rows + more > max_rows:
                break
            end, rows = entry.position, rows + more
        return Cut(end, rows)

    def waiting(self, offset: Offset) -> Waiting:
        """Return the first partition of each site of which rows lie behind the offset."""
        sites = {part.site for part in self._parts(offset) if part.counts.rows}
        return Waiting(frozenset(self._index(site, 0) for site in sites), self._clock.monotonic())

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return partials as rows, for people: no stream is computed of them."""
        several = len(self._inbox.known.partitions) > 1
        schema = self._arrow()
        if several:
            schema = schema.append(pa.field(PARTITION, pa.int32(), False))
        schema = schema.append(pa.field(ARRIVAL, pa.int64(), False))
        tables = []
        for entry in self._inbox.between(position(start), position(end)):
            if (table := self._table(entry)) is not None:
                part = entry.parcel.parts[0]
                index = pa.repeat(pa.scalar(self._index(part.site, 0), pa.int32()), len(table))
                table = table.append_column(PARTITION, index) if several else table
                table = table.append_column(ARRIVAL, pa.repeat(pa.scalar(part.arrived or 0, pa.int64()), len(table)))
                tables.append(table.cast(schema))
        return spark.createDataFrame(pa.concat_tables(tables) if tables else schema.empty_table())

    def ingested_at(self, start: Offset, end: Offset) -> Micros:
        """Return when the newest row up to `end` arrived in its source, at its site."""
        if position(end) == self._inbox.newest:
            return self._inbox.known.arrived
        return self._inbox.known_at(position(end)).arrived

    def watermark(self, end: Offset) -> Micros | None:
        """Return the least of the watermarks that the sources at the sites injected; None while one has none."""
        at_end = position(end) == self._inbox.newest
        last = self._inbox.known.last if at_end else self._inbox.known_at(position(end)).last
        injected = [last[site].injected if site in last else None for site in self.sites]
        known = [moment for moment in injected if moment is not None]
        return min(known) if known and len(known) == len(injected) else None

    def exhausted(self, offset: Offset) -> bool:
        """Tell whether all sites that are not left out have said that their runs end, and nothing lies behind."""
        waited_for = [site for site in self.sites if site not in self._left_out]
        ended = all(site in self._heard and self._heard[site].ended for site in waited_for)
        return ended and position(offset) >= self._inbox.newest

    @property
    def silent(self) -> tuple[Site, ...]:
        """The sites that have not been heard in this run."""
        return tuple(site for site in self.sites if site not in self._heard)

    def release(self, oldest_needed: Offset) -> None:
        """Let go of what is committed."""
        self._inbox.release(position(oldest_needed))

    def close(self) -> None:
        """Do nothing: what came is durable."""


class Front:
    """How far the event time of each site has come, up to a position."""

    def __init__(self) -> None:
        self.position = 0
        self._newest: dict[Site, Micros] = {}

    def take(self, entries: Iterable[Entry]) -> None:
        """Take note of the next parcels."""
        for entry in entries:
            self._newest.update((part.site, _newest(part)) for part in entry.parcel.parts)
            self.position = entry.position

    def least(self, sites: Iterable[Site], parts: Iterable[Part] = ()) -> Micros:
        """Return the event time that all of some sites have come to, also with some more parts."""
        newest = self._newest | {part.site: _newest(part) for part in parts}
        return min((newest.get(site, MIN_TIME) for site in sites), default=MAX_TIME)


def _newest(part: Part) -> Micros:
    """Return the event time that all partitions of a site have come to but those for which no window waits for long."""
    counted = [each.newest for each in part.partitions if each.idle is None or each.idle < LOOK]
    return min((MIN_TIME if moment is None else moment for moment in counted), default=MAX_TIME)


def _rows(entry: Entry) -> int:
    return sum(part.counts.rows for part in entry.parcel.parts)
