"""How few bytes parcels take on a link: numbers for keys that the other end has, against Arrow IPC with zstd.

    python -m benchmarks.wire [--quick]

`words`: counts of the words in 100 kB of text, after 3 MB of other text went over the link (the sample of Wikipedia in
`--data`; else words by Zipf's law). `keyed`: count, sum and largest of fares of 1,000 taxis that keep coming (the hour
of trips in `--data`; else drawn). `ship.cpu_ms`: a parcel of 1,000 keys, packed and read, processor time of both ends.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks.harness import Run, benchmark
from benchmarks.wide_problems import text_of
from transom.engine.partials.contents import Origin, TableNote
from transom.engine.partials.tables import PANE, describe_table, state_name
from transom.model.expression import Expression
from transom.sites.codec import LinkPacking
from transom.widearea.bodies import from_body, to_body
from transom.widearea.parcels import Delays, Parcel, Part, PartitionProgress, RowCounts
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.extremes import Extreme
from transom.windows.aggregates.sums import Sum

TEXT, BEFORE = 100_000, 3_000_000
"""Bytes of text in a parcel, and of what went before those that are counted."""
KEYS, TRIPS, PARCELS = 1_000, 2_000, 30
"""Taxis, trips in a parcel, and parcels, of which the last third is counted."""
TAXIS = "nyc_taxi_debs2015_first_hour.csv"
START = 1_764_450_000_000_000
REDUCED = "half of the text that goes before"


@dataclass
class Sent:
    """What went over a link."""

    plain: int
    """Bytes of Arrow IPC with zstd."""
    wire: int
    pack_s: float
    read_s: float
    equal: bool


def ipc(table: pa.Table) -> int:
    """Return the bytes of Arrow IPC with zstd."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return int(sink.getvalue().size)


def ship(tables: Sequence[pa.Table]) -> Iterator[Sent]:
    """Send tables of one flow over a link, one after another."""
    here, there = LinkPacking(), LinkPacking()
    for number, table in enumerate(tables, 1):
        at = START + number * 1_000_000
        part = Part(
            "paris",
            "0123456789abcdef",
            3,
            number - 1,
            number,
            number,
            partitions=(PartitionProgress(at, None),),
            arrived=at + 12_345,
            counts=RowCounts(TRIPS),
            delays=Delays(TRIPS, 1.5e9 + number, 2.0e12 + number),
        )
        parcel = Parcel("words", number, (part,), to_body(table))
        begun = time.process_time()
        data = here.pack(parcel, False)
        packed = time.process_time()
        read = there.unpack(data)
        ended = time.process_time()
        here.named(number)
        here.confirmed(number)
        same = read is not None and read.parts == parcel.parts and _same(from_body(read.body), table)
        yield Sent(ipc(table), len(data), packed - begun, ended - packed, same)


def _same(read: pa.Table | None, sent: pa.Table) -> bool:
    if read is None or not read.schema.equals(sent.schema, check_metadata=True):
        return False
    order = [(name, "ascending") for name in sent.column_names[:2]]
    return bool(read.sort_by(order).equals(sent.sort_by(order)))


def counted(words: Sequence[str], pane: int) -> pa.Table:
    """Return the partials of word counts."""
    counts = Counter(words)
    columns = {
        PANE: pa.array([pane] * len(counts), pa.int64()),
        "word": pa.array(list(counts)),
        state_name(0, "count"): pa.array(counts.values(), pa.int64()),
    }
    origin = Origin("0123456789abcdef", ("word",))
    return describe_table(pa.table(columns), TableNote(origin, (Count(),), ("",), (origin,)))


def words(run: Run) -> None:
    """Measure word counts."""
    text = text_of(run.data)
    ends = np.cumsum([len(word.encode()) + 1 for word in text])
    before = BEFORE // 2 if run.quick else BEFORE
    if ends[-1] < before + 6 * TEXT:
        raise RuntimeError(f"There are {ends[-1]:,} bytes of text, and {before + 6 * TEXT:,} are needed.")
    cuts = np.searchsorted(ends, np.arange(0, before + 6 * TEXT, TEXT))
    tables = [counted(text[a:b], START + i * 1_000_000) for i, (a, b) in enumerate(pairwise(cuts))]
    report(run, "words", list(ship(tables)), 5)


def trips(directory: Path) -> tuple[pa.Array, pa.Array]:
    """Return the taxis and fares of the trips of the taxis that have most."""
    path = directory / TAXIS
    if path.is_file():
        table = csv.read_csv(path, read_options=csv.ReadOptions(autogenerate_column_names=True))
        cabs, fares = table.column("f0").combine_chunks(), table.column("f11").combine_chunks()
    else:
        random = np.random.default_rng(5)
        cabs = pa.array([f"{random.integers(1 << 60):032X}" for _ in range(4_630)]).take(
            pa.array(random.integers(4_630, size=10_000))
        )
        fares = pa.array(np.round(random.gamma(2.0, 6.0, 10_000) * 2) / 2)
    most = [cab for cab, _ in Counter(cabs.to_pylist()).most_common(KEYS)]
    chosen = pc.is_in(cabs, pa.array(most))
    return cabs.filter(chosen), fares.filter(chosen)


def keyed(run: Run) -> None:
    """Measure fares of taxis."""
    cabs, fares = trips(run.data)
    random = np.random.default_rng(11)
    fare = Expression("fare")
    origin = Origin("0123456789abcdef", ("taxi",))
    note = TableNote(origin, (Count(), Sum(fare), Extreme(fare, "max")), ("",), (origin,))
    tables = []
    for number in range(PARCELS):
        drawn = pa.array(random.integers(len(cabs), size=TRIPS))
        grouped = pa.table({"taxi": cabs.take(drawn), "fare": fares.take(drawn)}).group_by("taxi")
        found = grouped.aggregate([("fare", "count"), ("fare", "sum"), ("fare", "max")])
        columns = {
            PANE: pa.array([START + number * 1_000_000] * len(found), pa.int64()),
            "taxi": found["taxi"],
            state_name(0, "count"): found["fare_count"],
            state_name(1, "sum"): found["fare_sum"],
            state_name(2, "max"): found["fare_max"],
        }
        tables.append(describe_table(pa.table(columns), note))
    sent = list(ship(tables))
    report(run, "keyed", sent, PARCELS // 3)
    run.figure("ship.cpu_ms", 1000 * statistics.median(each.pack_s + each.read_s for each in sent[-PARCELS // 3 :]))


def report(run: Run, name: str, sent: Sequence[Sent], last: int) -> None:
    """Print what parcels took, and note the ratio of the last ones."""
    rows = []
    for each in (sent[0], sent[1], sent[len(sent) // 2], sent[-1]):
        ratio = f"{each.wire / each.plain:.2f}"
        rows.append([sent.index(each) + 1, each.plain, each.wire, ratio, f"{1e3 * (each.pack_s + each.read_s):.1f}"])
    run.table(name, ["parcel", "IPC with zstd, bytes", "on the link", "ratio", "CPU, ms"], rows)
    run.check([] if all(each.equal for each in sent) else [f"{name}: what came is not what was sent"])
    counted = sent[-last:]
    run.figure(f"{name}.wire_ratio", sum(each.wire for each in counted) / sum(each.plain for each in counted))


def main() -> None:
    """Run the benchmark."""
    with benchmark("wire", REDUCED) as run:
        words(run)
        keyed(run)


if __name__ == "__main__":
    main()
