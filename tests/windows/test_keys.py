"""Keys as small integers: the same ones however they are looked up."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.windows import keys
from transom.windows.keys import KeyIndex

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), [None, "", "a", "b", "é", "x" * 40, "x" * 41, "x" * 70_000 + "y", "y" + "x" * 70_000]),
    "long": (pa.int64(), [None, 0, -1, 1, 2**63 - 1, -(2**63)]),
    "short": (pa.int16(), [None, 0, -1, 7]),
    "day": (pa.date32(), [None, date(1970, 1, 1), date(2026, 3, 1)]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [None, datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, 12, tzinfo=UTC)],
    ),
    "truth": (pa.bool_(), [None, True, False]),
    "number": (pa.float64(), [None, 0.0, 1.5, float("nan"), float("inf")]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
rows = st.lists(st.tuples(*(st.sampled_from(values) for _, values in VALUES.values())), max_size=12)


def table(of: list[tuple[Any, ...]], names: list[str]) -> pa.Table:
    columns = dict(zip(VALUES, zip(*of, strict=True) if of else [()] * len(VALUES), strict=True))
    return pa.table({name: pa.array(columns[name], VALUES[name][0]) for name in names})


@given(st.lists(rows, max_size=5), st.sets(st.sampled_from([*VALUES]), min_size=1, max_size=3), st.booleans())
def test_hashes_give_the_numbers_that_arrow_gives(pieces: list[Any], chosen: set[str], collide: bool) -> None:
    """Also where all hashes are equal, and in a copy, which adds nothing to the index that it is of."""
    names = [name for name in VALUES if name in chosen]
    schema = pa.schema([SCHEMA.field(name) for name in names])
    plain, hashed = KeyIndex(schema), KeyIndex(schema)
    with pytest.MonkeyPatch.context() as patch:
        for piece in pieces:
            patch.setattr(keys, "MANY", 1 << 60)
            wanted = plain.intern(table(piece, names)).tolist()
            patch.setattr(keys, "MANY", 1)
            patch.setattr(keys, "FEW", 1 << 60)
            if collide:
                patch.setattr(keys, "value_hashes", lambda values: np.zeros(len(values), np.int64))
            before, other = hashed.table(), hashed.copy()
            assert other.intern(table(piece, names)).tolist() == wanted
            assert (len(hashed), repr(hashed.table())) == (len(before), repr(before))
            assert hashed.intern(table(piece, names)).tolist() == wanted
            assert len(hashed) == len(other) == len(plain)
            assert repr(hashed.table()) == repr(other.table()) == repr(plain.table())


def test_other_texts_have_other_hashes() -> None:
    """Whatever else is hashed with them."""
    texts = [*(f"{letter}{number}" for number in range(20_000) for letter in "xyz"), None, "", "x"]
    texts += ["xx", "x\0", "x\0\0"]
    texts += ["x" * 70_000, "x" * 70_001, "x" * 69_999 + "y", "y" + "x" * 69_999, "x" * 140_000]
    hashes = keys.value_hashes(pa.array(texts)).tolist()
    assert len(set(hashes)) == len(texts)
    for at in (0, 7, len(texts) - 8, len(texts) - 1):
        assert keys.value_hashes(pa.array(texts[at:])).tolist() == hashes[at:]
        assert keys.value_hashes(pa.array(["of another", *texts])[at + 1 :][:3]).tolist() == hashes[at : at + 3]
