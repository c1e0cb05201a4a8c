"""Partials that several sites have made are one table, whatever the order of the aggregates in their jobs."""

from __future__ import annotations

import pyarrow as pa
import pytest

import transom as tm
from transom.engine.partials.contents import Origin, TableNote
from transom.engine.partials.tables import PANE, PartialTable, describe_table, state_name, together
from transom.errors import JobChangedError
from transom.windows.components import ROWS

SUMS = {name: tm.sum(name).primitives[0] for name in "abc"}
NAMES = [ROWS.key, *(each.key for each in SUMS.values())]


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
    whole = PartialTable.of(together(tables, ["zone"], NAMES))
    assert whole.contents.primitives == (ROWS.key, *(SUMS[name].key for name in held))
    for number, name in enumerate(held, 1):
        column = whole.table.column(state_name(number, "sum")).to_pylist()
        assert column == ["abc".index(name) + 1] * len(tables)
    assert whole.table.column("zone").to_pylist() == ["x"] * len(tables)


def test_what_nobody_needs_is_left_out_where_tables_differ() -> None:
    extra = partials("cab").append_column("extra", pa.array([7]))
    whole = PartialTable.of(together([partials("abc"), extra], ["zone"], {ROWS.key, SUMS["a"].key}))
    assert whole.contents.primitives == (ROWS.key, SUMS["a"].key)
    assert set(whole.table.column_names) == {PANE, "zone", "_s0_count", "_s1_sum"}


def test_what_does_not_go_together_is_said() -> None:
    with pytest.raises(JobChangedError, match="have the columns"):
        together([partials("ab"), partials("ba", kind=pa.float64())], ["zone"], NAMES)
