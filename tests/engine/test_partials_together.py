"""Partials that several sites have made are one table, whatever the order of the aggregates in their jobs."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import transom as tm
from transom.engine.partials.contents import Origin, TableNote
from transom.engine.partials.tables import PANE, PartialTable, describe_table, state_name, together
from transom.errors import JobChangedError
from transom.windows.components import ROWS

SUMS = {name: tm.sum(name).primitives[0] for name in "abc"}
LONG, TEXT = pa.int64(), pa.string()
NAMES = {ROWS.key: {"count": LONG}, **{each.key: {"sum": LONG} for each in SUMS.values()}}


def partials(names: str, keys: tuple[str, ...] = ("zone",), kind: pa.DataType | None = None) -> pa.Table:
    """Return one row whose sum of `a` is 1, of `b` is 2, and of `c` is 3."""
    primitives = (ROWS, *(SUMS[name] for name in names))
    columns: dict[str, pa.Array] = {PANE: pa.array([0], pa.int64()), **{key: pa.array(["x"]) for key in keys}}
    columns[state_name(0, "count")] = pa.array([1], pa.int64())
    for number, name in enumerate(names, 1):
        columns[state_name(number, "sum")] = pa.array(["abc".index(name) + 1], kind or pa.int64())
    origin = Origin("rows", tuple(sorted(keys)))
    return describe_table(pa.table(columns), TableNote(origin, primitives, made_for=(origin,)))


@pytest.mark.parametrize(
    ("tables", "held"),
    [
        ([partials("ab"), partials("ba", ("zone", "kind"))], "ab"),
        ([partials("ab"), partials("ba")], "ab"),
        ([partials("cab"), partials("abc"), partials("ba")], "ab"),
        ([partials("ab", ("zone", "kind")), partials("ba", ("kind", "zone"))], "ab"),
        ([partials("ba"), partials("ba")], "ba"),
        ([partials("abc")], "abc"),
    ],
)
def test_states_go_by_what_they_are(tables: list[pa.Table], held: str) -> None:
    whole = PartialTable.of(together(tables, {"zone": TEXT}, NAMES))
    assert whole.contents.primitives == (ROWS.key, *(SUMS[name].key for name in held))
    for number, name in enumerate(held, 1):
        column = whole.table.column(state_name(number, "sum")).to_pylist()
        assert column == ["abc".index(name) + 1] * len(tables)
    assert whole.table.column("zone").to_pylist() == ["x"] * len(tables)


def test_what_nobody_needs_is_left_out_where_tables_differ() -> None:
    extra = partials("cab").append_column("extra", pa.array([7]))
    whole = PartialTable.of(together([partials("abc"), extra], {"zone": TEXT}, {ROWS.key: {}, SUMS["a"].key: {}}))
    assert whole.contents.primitives == (ROWS.key, SUMS["a"].key)
    assert set(whole.table.column_names) == {PANE, "zone", "_s0_count", "_s1_sum"}


def typed(key: pa.Array, total: pa.Array) -> pa.Table:
    """Return one row with a key and a sum of some types."""
    table = partials("a", ())
    table = table.set_column(table.schema.get_field_index("_s1_sum"), "_s1_sum", total)
    return table.add_column(1, "zone", key)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((pa.array([1], pa.int32()), pa.array([7], LONG)), (pa.int64(), LONG)),
        ((pa.array([1], pa.int32()), pa.array([7], pa.int32())), (pa.decimal128(12, 2), pa.float64())),
        (
            (pa.array([Decimal("1.5")], pa.decimal128(4, 1)), pa.array([Decimal("7.25")], pa.decimal128(9, 2))),
            (pa.decimal128(6, 1), pa.decimal128(12, 2)),
        ),
    ],
    ids=["integers", "others", "decimals"],
)
def test_types_that_have_become_wider_since_some_came_are_those_of_now(old, new) -> None:
    """An inbox holds parcels of the run before, and those of the next one come behind them."""
    kind, total = new
    before, now = typed(*old), typed(old[0].cast(kind), old[1].cast(total))
    names = {ROWS.key: {"count": LONG}, SUMS["a"].key: {"sum": total}}
    for tables in ([before, now], [now, before], [before, now, before]):
        whole = together(tables, {"zone": kind}, names)
        assert (whole.schema.field("zone").type, whole.schema.field("_s1_sum").type) == (kind, total)
        assert whole.column("zone").to_pylist() == now.column("zone").to_pylist() * len(tables)
        assert whole.column("_s1_sum").to_pylist() == now.column("_s1_sum").to_pylist() * len(tables)


def test_what_does_not_go_together_is_said() -> None:
    with pytest.raises(JobChangedError, match="as double; now it is bigint"):
        together([partials("ab"), partials("ba", kind=pa.float64())], {"zone": TEXT}, NAMES)
    with pytest.raises(JobChangedError, match="key zone"):
        together([partials("ab"), partials("ba")], {"zone": LONG}, NAMES)
    with pytest.raises(JobChangedError, match="have the columns"):
        together([partials("ab"), partials("ba", kind=pa.float64())], {"zone": TEXT}, {key: {} for key in NAMES})
