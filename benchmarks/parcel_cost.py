"""What a parcel costs a site: processor time of each step on its way, from the partials of a cut to those of windows.

    python -m benchmarks.parcel_cost [--quick]

No Spark: 20 flows, each with a condition of its own, as those of `wide_area --only table1`: 1,000 keys, of which a
parcel has about two thirds, with sum, least and largest of six columns. All steps are those of a site: what a source
does (`take` to `pack`), a relay that merges three parcels (`merge`), a destination (`unpack` to `windows`).
`parcel.cpu_ms` is the sum over the steps of a parcel that goes straight, `parcel.merge_ms` what a relay takes besides.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import Run, benchmark
from benchmarks.wide_table import VALUES, keyed_partials, primitives
from transom.engine.partials.contents import Origin, TableNote
from transom.engine.partials.tables import PANE, TAG, PartialTable, describe_table
from transom.engine.spark.cutstats import CutStats
from transom.engine.streams.sending import CutRange, FlowSender
from transom.model.expression import Expression
from transom.model.window import WindowSpec
from transom.sites.agreement import difference, flaw, merged, partials_in
from transom.sites.codec import LinkPacking
from transom.sites.inbox import Inbox
from transom.sites.measuring import FlowSizes
from transom.widearea.bodies import from_body, to_body
from transom.widearea.parcels import Body, Delays, Parcel, Part, PartitionProgress, RowCounts
from transom.windows.aggregates.base import Types
from transom.windows.aggregates.extremes import ExtremeOf
from transom.windows.aggregates.sums import SumOf
from transom.windows.components import KeySet, key_sets_of
from transom.windows.query import Key, WindowedQuery
from transom.windows.store import PaneStore

FLOWS, ROUNDS, ROWS = 20, 12, 1_100
SITES = ("paris", "rome", "oslo")
"""Those whose parcels a relay merges."""
WINDOW = 240_000_000
LONG = pa.int64()
KEYS = pa.schema([("key", LONG)])
TYPES: dict[str, Types] = {
    "Count": {"count": LONG},
    "Sum": {"sum": LONG, "count": LONG, "carry": LONG},
    "Extreme": {"value": LONG},
}
KEPT = {primitive: TYPES[type(primitive).__name__] for primitive in primitives()}
REDUCED = "a quarter of the rounds"


class Costs:
    """Processor time by step, and how many parcels took it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.parcels: dict[str, int] = defaultdict(int)

    @contextmanager
    def of(self, step: str, parcels: int = 1) -> Iterator[None]:
        """Count what the body takes for so many parcels."""
        begun = time.process_time()
        yield
        self.seconds[step] += time.process_time() - begun
        self.parcels[step] += parcels

    def ms(self, step: str) -> float:
        """Return the processor time of a step for each parcel, milliseconds."""
        return 1000 * self.seconds[step] / self.parcels[step]


def condition(flow: int) -> str:
    """Return the condition of a flow."""
    return f"(q = {flow})"


def origin_of(flow: int) -> Origin:
    """Return the origin of the partials of a flow."""
    return Origin("0123456789abcdef", ("key",), condition(flow))


def query_of(flow: int) -> WindowedQuery:
    """Return the query that makes the partials of a flow."""
    columns = [Expression(name) for name in VALUES]
    asked = [each for x in columns for each in (SumOf(x), ExtremeOf(x, "min"), ExtremeOf(x, "max"))]
    return WindowedQuery(
        f"flow{flow}",
        0,
        (Key("key", Expression("key")),),
        (WindowSpec(WINDOW, WINDOW, 0),),
        tuple((f"a{number}", each) for number, each in enumerate(asked)),
        condition=Expression(condition(flow)),
    )


def key_set(flow: int) -> KeySet:
    """Return the key set of a flow."""
    return key_sets_of([query_of(flow)])[0]


def cut_of(rng: np.random.Generator) -> pa.Table:
    """Return the partials of a cut: those of all flows, as its job returns them."""
    tables = []
    for flow in range(FLOWS):
        table = keyed_partials(rng, ROWS)
        tables.append(table.append_column(TAG, pa.array(np.full(len(table), flow, np.int32))))
    origins = tuple(origin_of(flow) for flow in range(FLOWS))
    conditions = tuple(condition(flow) for flow in range(FLOWS))
    note = TableNote(Origin("0123456789abcdef", ("key",)), primitives(), conditions, origins)
    whole = pa.concat_tables(tables).combine_chunks()
    shuffled = whole.take(pa.array(rng.permutation(len(whole))))
    return describe_table(shuffled, note)


def parcel_of(flow: int, site: str, made: CutRange) -> Parcel:
    """Return the parcel of a range of cuts."""
    at = made.upto * WINDOW
    progress, delays = (PartitionProgress(at, None),), Delays(ROWS, 1.5e9 + at, 2e12)
    part = Part(
        site,
        "0123456789abcdef",
        3,
        made.after,
        made.upto,
        made.upto,
        partitions=progress,
        arrived=at,
        counts=RowCounts(ROWS),
        delays=delays,
    )
    return Parcel(f"flow{flow}", made.upto, (part,), to_body(made.table))


def sent(costs: Costs, senders: list[FlowSender], sizes: list[FlowSizes], cut: pa.Table, number: int) -> list[CutRange]:
    """Let all flows of a source take a cut, and leave."""
    with costs.of("take", FLOWS):
        partials = [PartialTable.of(cut)]
        for sender in senders:
            sender.take(number, partials, CutStats(), None)
    with costs.of("fix", FLOWS):
        ranges = [sender.fix(number, number) for sender in senders]
    with costs.of("sizes", FLOWS):
        for each, made in zip(sizes, ranges, strict=True):
            each.fixed(number, made.table)
    for sender in senders:
        sender.arrived_up_to(number)
    return ranges


class Destination:
    """Where all flows end."""

    def __init__(self, root: Path) -> None:
        self.inboxes = []
        for flow in range(FLOWS):
            directory = root / f"flow{flow}"
            directory.mkdir()
            self.inboxes.append(Inbox(f"flow{flow}", directory, SITES))
        self.shapes = [(key_set(flow), origin_of(flow), KEYS, KEPT) for flow in range(FLOWS)]
        self.stores = [PaneStore(key_set(flow).grid, KEYS, KEPT) for flow in range(FLOWS)]
        self.names = {primitive: primitive.key for primitive in KEPT}

    def take(self, costs: Costs, flow: int, parcel: Parcel) -> list[str]:
        """Check a parcel, make it durable, and merge its partials; return what is wrong."""
        shapes = [self.shapes[flow]]
        with costs.of("check"):
            found = partials_in(parcel.body)
            assert found is not None
            wrong = difference(shapes, found) if parcel.part.upto == 1 else ""
            wrong = wrong or flaw(shapes, found)
        with costs.of("inbox"):
            self.inboxes[flow].append(parcel)
        with costs.of("read"):
            table = from_body(
                self.inboxes[flow].body(self.inboxes[flow].between(parcel.part.after, parcel.part.upto)[0])
            )
        assert table is not None
        with costs.of("windows"):
            mine = PartialTable.of(table).of_condition(condition(flow))
            self.stores[flow].add(mine.panes(), mine.table, mine.states(self.names, KEPT))
        return [wrong] if wrong else []


def measured(run: Run, rounds: int) -> Costs:
    """Let parcels go their way, and return what each step took; the first rounds, which bring keys, do not count."""
    rng, costs = np.random.default_rng(7), Costs()
    senders = [FlowSender(f"flow{flow}", (key_set(flow), origin_of(flow), KEYS, KEPT)) for flow in range(FLOWS)]
    sizes = [FlowSizes() for _ in range(FLOWS)]
    here, there, wrong = LinkPacking(), LinkPacking(), list[str]()
    bodies = deque[Body](maxlen=len(SITES))  # as if cuts were those of several sites
    kept = [PaneStore(key_set(flow).grid, KEYS, KEPT) for flow in range(FLOWS)]
    with tempfile.TemporaryDirectory() as root:
        destination = Destination(Path(root))
        for number in range(1, rounds + 3):
            if number == 3:
                costs = Costs()
            ranges = sent(costs, senders, sizes, cut_of(rng), number)
            for flow, made in enumerate(ranges):
                with costs.of("body"):
                    parcel = parcel_of(flow, SITES[0], made)
                with costs.of("pack"):
                    data = here.pack(parcel, False)
                here.named(number * FLOWS + flow)
                with costs.of("unpack"):
                    came = there.unpack(data)
                here.confirmed(number * FLOWS + flow)
                assert came is not None
                wrong += destination.take(costs, flow, came)
                mine = PartialTable.of(made.table)
                kept[flow].add(mine.panes(), mine.table, mine.states(destination.names, KEPT))
            bodies.append(to_body(ranges[0].table))
            with costs.of("merge"):
                merged(senders[0], bodies)
        for flow, store in enumerate(destination.stores):
            rows = [_rows(each) for each in (store, kept[flow])]
            wrong += [] if rows[0].equals(rows[1]) else [f"flow{flow}: what came is not what left"]
    run.check(wrong)
    return costs


def _rows(store: PaneStore) -> pa.Table:
    panes, keys, states = store.rows()
    columns = {PANE: panes, "key": keys.column("key")}
    for number, (primitive, types) in enumerate(KEPT.items()):
        columns |= {f"{number}_{name}": each for name, each in primitive.encode(states[primitive], types).items()}
    return pa.table(columns).sort_by("key")


def main() -> None:
    """Run the benchmark."""
    with benchmark("parcel_cost", REDUCED) as run:
        costs = measured(run, ROUNDS // 4 if run.quick else ROUNDS)
        straight = [step for step in costs.seconds if step != "merge"]
        rows = [[step, f"{costs.ms(step):.2f}"] for step in costs.seconds]
        run.table("a parcel", ["step", "CPU, ms"], rows)
        for step in costs.seconds:
            run.figure(f"parcel.{step}_ms", costs.ms(step))
        run.figure("parcel.cpu_ms", sum(map(costs.ms, straight)))


if __name__ == "__main__":
    main()
