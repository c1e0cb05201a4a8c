"""Columns as expressions: two that mean the same are one, as long as somebody has it."""

from __future__ import annotations

from transom.model import expression
from transom.model.expression import Expression


class Column:
    """As one of Spark, as far as an expression asks."""

    def __init__(self, text: str) -> None:
        self._expr = text

    def __str__(self) -> str:
        return f"Column<'{self._expr}'>"

    alias = cast = None


def test_columns_that_mean_the_same_are_one_expression() -> None:
    assert Expression.of(Column("a + 1"), "where") != Expression.of(Column("a + 2"), "where")
    one = Expression.of(Column("a + 1"), "where")
    assert Expression.of(Column("a + 1"), "where") == one


def test_columns_that_are_gone_are_forgotten() -> None:
    """Whoever asks a collection again and again asks with ever new ones."""
    before = dict(expression._columns)
    kept = Expression.of(Column("kept"), "where")
    for number in range(100):
        Expression.of(Column(f"a > {number}"), "where")
    assert expression._columns.keys() - before.keys() == {str(kept)}
    del kept
    assert expression._columns.keys() <= before.keys()
