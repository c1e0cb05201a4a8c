"""Columns that tell one another: what others say already is not sent again, and what they cannot say is refused."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import bits, parcel, rows_of

from transom.errors import SiteError
from transom.sites import related
from transom.sites.codec import LinkPacking
from transom.sites.columns import Reader, Writer, as_ints
from transom.sites.related import Related


def grouped(rows: dict[str, list[int]], kinds: dict[str, pa.DataType]) -> pa.Table:
    """Return partials of lists of numbers, by key: count, sum, least and largest."""
    made = {
        "_pane": pa.array([0] * len(rows)),
        "word": pa.array(list(rows)),
        "_s0_count": pa.array([len(each) for each in rows.values()]),
        "_s1_sum": pa.array([sum(each) for each in rows.values()], kinds["sum"]),
        "_s2_value": pa.array([min(each) for each in rows.values()], kinds["value"]),
        "_s3_value": pa.array([max(each) for each in rows.values()], kinds["value"]),
    }
    return pa.table(made).replace_schema_metadata({"transom": "{}"})


@pytest.mark.parametrize(("total", "value"), [("int64", "int64"), ("int64", "int32"), ("double", "double")])
def test_what_columns_tell_of_one_another_is_not_sent_again(total: str, value: str) -> None:
    """One row of a key: one number. Two: two. More: all three; the order of columns does not matter."""
    chance, bits_of = np.random.default_rng(7), {"int32": 30, "int64": 52, "double": 45}[value]
    kinds = {"sum": pa.type_for_alias(total), "value": pa.type_for_alias(value)}
    sizes = []
    for most in (1, 2, 40):
        rows = {f"{n:03}": chance.integers(0, 1 << bits_of, most).tolist() for n in range(500)}
        made = grouped(rows, kinds)
        for names in (made.column_names, [*made.column_names[:3], "_s3_value", "_s2_value", "_s1_sum"]):
            sent = parcel(made.select(names).replace_schema_metadata({"transom": "{}"}))
            data = LinkPacking().pack(sent, False)
            read = LinkPacking().unpack(data)
            assert read is not None
            assert rows_of(read) == rows_of(sent)
        sizes.append(len(data))
    one, two, many = sizes
    a_column = 500 * bits_of / 8
    fixed = one - a_column  # of each parcel: keys, schema and headers
    assert two - fixed < 2.1 * a_column
    assert many - fixed > 2.9 * a_column


NUMBERS = st.sampled_from([0, 1, 5, 300, -300, 70_000, 2**62, -(2**63), 2**63 - 1])


@given(
    st.lists(
        st.tuples(st.sampled_from(["new", "same", "sum", "less"]), st.lists(NUMBERS, min_size=40, max_size=40)),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
@settings(max_examples=60)
def test_columns_that_tell_one_another_are_read_as_they_were_written(drawn, data) -> None:
    """Equal to one before, or to the sum or difference of two, with exceptions and nulls; of several types."""
    arrays: list[pa.Array] = []
    for how, values in drawn:
        found = np.array(values, np.int64)
        if arrays and how != "new":
            one, two = (as_ints(data.draw(st.sampled_from(arrays)).view(pa.int64()).fill_null(0)) for _ in range(2))
            told = one if how == "same" else one + two if how == "sum" else one - two
            found = np.where(np.arange(40) % 7 == 3, found, told)
        array = pa.array(found).view(data.draw(st.sampled_from([pa.int64(), pa.float64(), pa.timestamp("us", "UTC")])))
        if data.draw(st.integers(0, 3)) == 0:
            array = pa.concat_arrays([pa.nulls(1, array.type), array[1:]])
        arrays.append(array)
    writer, out, into = Writer(), Related(), Related()
    for array in arrays:
        out.write(writer, array)
    reader = Reader(json.loads(json.dumps(writer.notes)), writer.data, 10_000)
    for array in arrays:
        assert bits(into.read(reader, array.type, len(array))) == bits(array)


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["new", "same", "sum", "null"]), min_size=4, max_size=4), st.integers(1, 90)
        ),
        min_size=2,
        max_size=6,
    )
)
@settings(max_examples=40)
def test_what_told_columns_once_may_not_tell_them_later(parcels: list[tuple[list[str], int]]) -> None:
    """Parcels of one flow, in which columns are equal, sums, or none of that, and nulls come and go."""
    here, there, chance = LinkPacking(), LinkPacking(), np.random.default_rng(5)
    for number, (hows, rows) in enumerate(parcels, 1):
        made = {"_pane": pa.array([0] * rows), "word": pa.array(chance.permutation([f"{n}" for n in range(rows)]))}
        columns = [chance.integers(0, 1 << 40, rows)]
        for how in hows:
            one, two = columns[-1], columns[max(0, len(columns) - 2)]
            columns.append(
                one if how == "same" else one + two if how == "sum" else chance.integers(-300, 1 << 50, rows)
            )
        for place, (how, values) in enumerate(zip(["new", *hows], columns, strict=True)):
            made[f"_s{place}_count"] = pa.array(values, mask=np.arange(rows) % 5 == 0 if how == "null" else None)
        sent = parcel(pa.table(made).replace_schema_metadata({"transom": "{}"}), number)
        read = there.unpack(here.pack(sent, False))
        here.named(number)
        here.confirmed(number)
        assert read is not None
        assert rows_of(read) == rows_of(sent)


def test_what_tells_columns_is_looked_for_again() -> None:
    """It is remembered for some parcels, which are no larger; that nothing was found is, too, and not for ever."""
    here, chance = LinkPacking(), np.random.default_rng(5)

    def size(number: int, told: bool) -> int:
        values = chance.integers(0, 1 << 50, (3, 500))
        made = {"_pane": pa.array([0] * 500), "word": pa.array([f"{n}" for n in range(500)])}
        values[2] = values[0] + values[1] if told else values[2]
        made |= {f"_s{place}_count": pa.array(each) for place, each in enumerate(values)}
        data = here.pack(parcel(pa.table(made).replace_schema_metadata({"transom": "{}"}), number), False)
        here.named(number)
        here.confirmed(number)
        return len(data)

    sizes = [size(number, told=number < 4) for number in range(1, 5)]
    assert sizes[2] * 1.4 < sizes[3]
    later = [size(number, told=True) for number in range(5, 5 + related.AGAIN)]
    assert max(later) < 1.1 * sizes[2]
    here = LinkPacking()
    sizes = [size(number, told=number > 1) for number in range(1, 2 + related.AGAIN)]
    assert sizes[-1] * 1.4 < sizes[1]


@pytest.mark.parametrize(
    "note",
    [
        *(None, 5, [0], [0, 0], [0, 0, 0, 0], [0] * 9),
        *([3, 0, 0], [-1, 0, 0], [True, 0, 0]),
        *([0, 7, 7], [0, -1, 0], [0, "0", 0], [0, 1, 1], [0, 2, 2]),
    ],
)
def test_columns_that_are_told_by_what_cannot_tell_them_are_refused(note) -> None:
    """The second column is of another kind, the third has nulls."""
    rows = [*range(100)]
    known = [pa.array(rows), pa.array([float(n) for n in rows]), pa.array([None, *rows[1:]], pa.int64())]
    writer, out, into = Writer(), Related(), Related()
    for array in known:
        out.write(writer, array)
    reader = Reader(writer.notes, writer.data, 10_000)
    for array in known:
        into.read(reader, array.type, 100)
    reader = Reader([note, 13, 0, [0, 0]], b"x" * 13, 10_000)
    with pytest.raises(SiteError):
        into.read(reader, pa.int64(), 100)


def test_rows_that_others_tell_count_as_rows() -> None:
    """A bit for each of them takes next to nothing, and each is a value."""
    array = pa.array([1 << 40 | n * n for n in range(4_000)])
    writer, out = Writer(), Related()
    for _ in range(10):
        out.write(writer, array)
    assert len(writer.data) < 2 * 4_000 * 8
    for most, passes in ((40_000, True), (39_999, False)):
        reader, into = Reader(writer.notes, writer.data, most), Related()
        with contextlib.nullcontext() if passes else pytest.raises(SiteError, match="more values"):
            for _ in range(10):
                into.read(reader, pa.int64(), 4_000)
