"""Programs: steps over rows without Spark, as values; what is in doubt is Spark's to judge."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from transom.native.evaluate import Runner, why_not
from transom.native.program import ANTI, INNER, LEFT, SEMI, Filter, Judge, Lookup, Program, Project
from transom.native.terms import Term, column

I, D, S = column("i", pa.int32()), column("d", pa.float64()), column("s", pa.string())
ROWS = pa.RecordBatch.from_pydict(
    {"i": [1, 2, 3, None], "d": [0.5, None, float("nan"), 2.0], "s": ["a", "b", None, "a"]},
    schema=pa.schema([("i", pa.int32()), ("d", pa.float64()), ("s", pa.string())]),
)


def literal(value: object, kind: pa.DataType) -> Term:
    """Return a constant."""
    return Term("Literal", kind, repr(value), value=pa.scalar(value, kind))


def plus(left: Term, right: Term) -> Term:
    """Return a sum that must not overflow."""
    return Term("Add", left.type, f"{left.text} + {right.text}", (left, right), mode="ANSI")


def test_a_program_filters_and_makes_columns():
    above = Term("GreaterThan", pa.bool_(), "i > 1", (I, literal(1, pa.int32())))
    more = plus(I, literal(10, pa.int32()))
    program = Program(ROWS.schema, (Filter(above), Project((("x", more), ("one", literal(1, pa.int64()))))))
    found = Runner(program)(ROWS)
    assert found.schema == program.schema == pa.schema([("x", pa.int32()), ("one", pa.int64())])
    assert found.to_pydict() == {"x": [12, 13], "one": [1, 1]}
    assert program.needed == (frozenset("i"), frozenset("i"), frozenset(["x", "one"]))
    assert why_not(program) is None


def test_equal_programs_are_equal_and_travel():
    def made() -> Program:
        among = Term("In", pa.bool_(), "s IN ('a')", (S, literal("a", pa.string())))
        return Program(ROWS.schema, (Filter(among), Project((("i", I),))))

    program = made()
    assert pickle.loads(pickle.dumps(program)) == program == made()
    assert hash(program) == hash(made())
    assert Runner(pickle.loads(pickle.dumps(program)))(ROWS).to_pydict() == {"i": [1, None]}


def test_what_would_fail_in_spark_is_for_spark_to_judge():
    most = plus(I, literal(2**31 - 3, pa.int32()))
    unguarded = Program(ROWS.schema, (Project((("x", most),)),))
    judged = Runner(unguarded)(ROWS)
    assert isinstance(judged, Judge)
    assert "overflow" in judged.why
    small = Term("LessThan", pa.bool_(), "i < 3", (I, literal(3, pa.int32())))
    guarded = Term("If", pa.int32(), "if(i < 3, i + 2147483645, 0)", (small, most, literal(0, pa.int32())))
    assert Runner(Program(ROWS.schema, (Project((("x", guarded),)),)))(ROWS)["x"].to_pylist() == [
        2**31 - 2,
        2**31 - 1,
        0,
        0,
    ]
    # A filter takes the rows away for which it would fail.
    assert Runner(Program(ROWS.schema, (Filter(small), Project((("x", most),)))))(ROWS).num_rows == 2


@pytest.mark.parametrize(
    "term", [Term("Levenshtein", pa.int32(), "levenshtein(s, 'b')", (S,)), Term("Column", pa.null(), "s", value="s")]
)
def test_what_only_spark_computes_is_said(term):
    program = Program(ROWS.schema, (Project((("x", term),)),))
    assert why_not(program) == f"only Spark computes {term.text}"


TABLE = pa.table(
    {
        "name": ["a", "b", "b", None, "z"],
        "number": pa.array([1, 2, 2, 1, None], pa.int32()),
        "what": ["first", "second", "third", "none", "last"],
    }
)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (INNER, [(1, "first"), (2, "second"), (2, "third"), (None, "first")]),
        (LEFT, [(1, "first"), (2, "second"), (2, "third"), (3, None), (None, "first")]),
        (SEMI, [(1, None), (2, None), (None, None)]),
        (ANTI, [(3, None)]),
    ],
)
@pytest.mark.parametrize("empty", [False, True])
def test_rows_are_looked_up(kind, expected, empty):
    added = (("w", "what", pa.string()),) if kind in (INNER, LEFT) else ()
    step = Lookup("t", ((S, "name"),), kind, added)
    shown = column("w", pa.string()) if added else literal(None, pa.string())
    program = Program(ROWS.schema, (step, Project((("i", I), ("w", shown)))))
    assert program.tables == {"t"}
    assert why_not(program) is None
    table = TABLE.slice(0, 0) if empty else TABLE
    found = Runner(program, {"t": table})(ROWS)
    if empty:
        expected = [(i, None) for i in (1, 2, 3, None)] if kind in (LEFT, ANTI) else []
    assert list(zip(found["i"].to_pylist(), found["w"].to_pylist(), strict=True)) == expected


def test_keys_of_several_columns():
    step = Lookup("t", ((S, "name"), (I, "number")), INNER, (("w", "what", pa.string()),))
    program = Program(ROWS.schema, (step, Project((("i", I), ("w", column("w", pa.string()))))))
    assert Runner(program, {"t": TABLE})(ROWS).to_pylist() == [
        {"i": 1, "w": "first"},
        {"i": 2, "w": "second"},
        {"i": 2, "w": "third"},
    ]
