"""Parcels of a site with a certificate and damaged memory: refused, or taken for what they say; nothing else happens.

Their checksums are right, as they are made of what is there.
"""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from several import SECOND, Several, region, results, windows
from test_in_one_process import wait_for
from tests.windows.test_aggregates_flaws import array_of, changed
from tests.windows.test_aggregates_laws import partial, types_of

import transom as tm
from transom.engine.partials.contents import Origin
from transom.engine.partials.tables import PANE, PartialTable, partial_table, state_name, together
from transom.engine.spark.cutstats import CutStats
from transom.engine.streams.sending import FlowSender
from transom.errors import SiteError
from transom.model.expression import Expression
from transom.model.time import FIRST_EVENT, LAST_EVENT, MAX_TIME
from transom.model.window import WindowSpec
from transom.sites import shipments
from transom.sites.agreement import difference, flaw, merged, merged_alike, partials_in
from transom.sites.codec import LinkPacking
from transom.sites.status import read_status
from transom.widearea.bodies import from_body, to_body
from transom.widearea.parcels import Parcel, Part, PartitionProgress
from transom.windows.components import ROWS, key_sets_of
from transom.windows.query import Key, WindowedQuery

LONG = pa.int64()
ASKED = [tm.sum("x"), tm.max("x"), tm.quantile("x", 0.5), tm.approx_count_distinct("x"), tm.top_k("x", 2)]
ASKED += [tm.collect_set("x", 3), tm.stddev_pop("x"), tm.max_by("x", "t")]
WORDS = WindowedQuery(
    "words",
    0,
    (Key("word", Expression("word")),),
    (WindowSpec(4 * SECOND, 4 * SECOND, 0),),
    tuple((f"a{number}", each) for number, each in enumerate([tm.count(), *ASKED])),
)
KEY_SET = key_sets_of([WORDS])[0]
ORIGIN, KEYS = Origin("rows", ("word",)), pa.schema([("word", pa.string())])
KEPT = {primitive: types_of(primitive, LONG) for primitive in KEY_SET.primitives}
SHAPE = (KEY_SET, ORIGIN, KEYS, KEPT)
NAMES = {ROWS.key: {"count": LONG}, **{primitive.key: types for primitive, types in KEPT.items()}}


def made() -> pa.Table:
    """Return partials of three words in two panes."""
    panes, words = np.repeat([0, 4 * SECOND], 3), pa.table({"word": ["a", "b", "c"] * 2})
    states = {}
    for primitive, types in KEPT.items():
        rows = [partial(primitive, [(row, 7 * row), (row + 1, row)], LONG) for row in range(6)]
        columns = {name: pa.concat_arrays([each[name] for each in rows]) for name in types}
        states[primitive] = primitive.decode(columns)
    return partial_table(KEPT, ORIGIN, {PANE: panes}, words, states)


GOOD = made()


@st.composite
def damaged(draw) -> pa.Table:
    """Return partials of which something is another."""
    table = GOOD
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, table.num_columns - 1))
        field, column = table.schema.field(at), table.column(at).combine_chunks()
        other = table.column(draw(st.integers(0, table.num_columns - 1)))
        how = draw(st.sampled_from([*["value"] * 3, "pane", "type", "name", "gone", "twice", "rows", "note"]))
        if how == "value":
            row = draw(st.integers(0, len(column) - 1))
            with suppress(pa.ArrowException, OverflowError, ValueError, TypeError):
                value = array_of(changed(draw, column[row].as_py(), field.type), field.type)
                table = table.set_column(at, field, pa.concat_arrays([column[:row], value, column[row + 1 :]]))
        elif how == "pane" and PANE in table.column_names:
            panes = draw(st.lists(st.sampled_from([FIRST_EVENT, LAST_EVENT, 2**63 - 1, -(2**63), 1]), min_size=1))
            values = pa.array((panes * len(table))[: len(table)], pa.int64())
            table = table.set_column(table.column_names.index(PANE), PANE, values)
        elif how == "type":
            table = table.set_column(at, field.name, other)
        elif how == "name":
            names = [*table.column_names]
            names[at] = draw(st.sampled_from([*names, "extra", "_length", "_condition_number"]))
            table = table.rename_columns(names)
        elif how == "gone":
            table = table.remove_column(at)
        elif how == "twice":
            table = table.append_column(draw(st.sampled_from(["extra", "_length", "_condition_number"])), other)
        elif how == "rows":
            table = pa.concat_tables([table, table.slice(draw(st.integers(0, len(table))))])
        else:
            note = json.loads(GOOD.schema.metadata[b"transom"])
            name = draw(st.sampled_from([*note, "other"]))
            note[name] = draw(st.sampled_from([None, 1, "x", [], [[1]], [{}], {"a": 1}, note.get(name, 1)]))
            table = table.replace_schema_metadata({"transom": json.dumps(note)})
    return table


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_at_a_destination(table: pa.Table) -> None:
    try:
        found = partials_in(to_body(table))
    except SiteError:
        return
    if found is None or difference([SHAPE], found) or flaw([SHAPE], found):
        return
    for tables in ([found.table, GOOD], [GOOD, found.table]):
        together_ = PartialTable.of(together(tables, {field.name: field.type for field in KEYS}, NAMES))
        gathered = FlowSender("words", SHAPE)
        for cut in (1, 2):
            gathered.take(cut, [together_], CutStats(), None)
        kept = gathered.fix(2, 1).table
        assert set(kept.column("word").to_pylist()) >= {"a", "b", "c"}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_at_a_relay(table: pa.Table) -> None:
    """Who has the job, and who has not; nothing is merged that leaves rows out."""
    rows = sum(GOOD.column("_s0_count").to_pylist())
    bodies = [to_body(GOOD), to_body(table)]
    for merge in (lambda: merged(FlowSender("words", SHAPE), bodies), lambda: merged_alike("words", bodies)):
        with suppress(SiteError):
            whole = partials_in(merge())
            number = whole.contents.primitives.index(ROWS.key)
            came = partials_in(bodies[1])
            mine = 0 if came is None else sum(came.columns_of(ROWS.key)["count"].to_pylist())
            assert sum(whole.table.column(state_name(number, "count")).to_pylist()) == rows + mine


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_on_the_way(table: pa.Table) -> None:
    """What a relay has read it can pass on."""
    sent = Parcel("words", 1, (Part("north", "ck", 1, 0, 1, 1),), to_body(table))
    try:
        data = LinkPacking().pack(sent, False)
    except Exception:  # at the site that is damaged itself
        return
    try:
        came = LinkPacking().unpack(data)
    except SiteError:
        return
    again = LinkPacking().unpack(LinkPacking().pack(came, False))
    assert again.parts == sent.parts
    assert (from_body(again.body) is None) == (from_body(sent.body) is None)


@pytest.mark.parametrize("change", [lambda names: ["_pain" if name == PANE else name for name in names]])
def test_a_schema_that_is_none_of_partials_is_not_passed_on(change, monkeypatch) -> None:
    table = GOOD.select([PANE, "word", "_s0_count"])
    other = table.rename_columns(change(table.column_names)).schema
    written = pa.Schema.serialize
    assert written(other) != written(table.schema)
    packing = LinkPacking()
    monkeypatch.setattr(packing, "_schema", lambda *_: (1, True))
    sent = Parcel("words", 1, (Part("north", "ck", 1, 0, 1, 1),), to_body(table))

    class Lying:
        """The table, of which it is said that it has other columns."""

        def __init__(self, real):
            self._real, self.schema = real, other

        def __getattr__(self, name):
            return getattr(self._real, name)

        def combine_chunks(self):
            return self

    monkeypatch.setattr("transom.sites.codec.from_body", lambda body: Lying(table))
    data = packing.pack(sent, False)
    with pytest.raises(SiteError, match="not those of partials"):
        LinkPacking().unpack(data)


def define(stream, sink):
    asked = {"n": tm.count(), "size": tm.sum("size")}
    stream.group_by("zone").window("4 seconds").agg(**asked).to(sink("zones"), "zones")


def without_rows(table: pa.Table) -> pa.Table:
    at = table.column_names.index("_s0_count")
    return table.set_column(at, "_s0_count", pa.array([None] * len(table), pa.int64()))


def with_many_wraps(table: pa.Table) -> pa.Table:
    (name,) = [name for name in table.column_names if name.endswith("_carry")]
    return table.set_column(table.column_names.index(name), name, pa.array([1 << 60] * len(table), pa.int64()))


def with_another_note(table: pa.Table) -> pa.Table:
    note = json.loads(table.schema.metadata[b"transom"])
    return table.replace_schema_metadata({"transom": json.dumps({**note, "keys": [["zone"]]})})


def damaged_body(damage):
    return "to_body", lambda table: to_body(damage(table)), "same version of Transom"


DAMAGES = [damaged_body(each) for each in (without_rows, with_many_wraps, with_another_note)]
LATER = ("PartitionProgress", lambda newest, idle: PartitionProgress(MAX_TIME - 1, idle), "Set the clocks of the sites")


@pytest.mark.usefixtures("in_memory", "compiled_once")
@pytest.mark.parametrize(("what", "damage", "remedy"), [*DAMAGES, LATER])
def test_it_is_refused_and_comes_when_the_site_is_whole_again(spark, tmp_path, monkeypatch, what, damage, remedy):
    several = Several(spark, tmp_path, region(["north"], "home"), define, watermark=tm.watermark("1 hour"))
    rows = [("ab"[second % 2], "x", second * SECOND, second) for second in range(20)]
    several.rows["north"].add(rows)
    with monkeypatch.context() as patched:
        patched.setattr(shipments, what, damage)
        running = [several.start("home"), several.start("north")]
        told = []

        def refused():
            told[:] = [flow["refused"] for flow in read_status(tmp_path / "north")["leaving"] if flow["refused"]]
            return told

        wait_for(running[1], refused)
        assert remedy in told[0]
        for each in running:
            each.stop()
            each.wait("10 minutes")
    several.run()
    assert results(several.sinks["zones"], "zones", ("zone",)) == windows(rows, ("zone",), 4 * SECOND)
