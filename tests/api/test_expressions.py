"""Columns as expressions: two that mean the same are one, as long as somebody has it."""

from __future__ import annotations

import sys
import threading

from transom.model import expression
from transom.model.expression import Expression


class Column:
    """As one of Spark, as far as an expression asks."""

    def __init__(self, text: str) -> None:
        self._expr = text

    def __str__(self) -> str:
        return f"Column<'{self._expr}'>"

    alias = cast = None


def there() -> set[str]:
    """Return the texts of the Columns that are remembered."""
    return {text for alike in expression._columns for text, _ in alike.values()}


def test_columns_that_mean_the_same_are_one_expression() -> None:
    assert Expression.of(Column("a + 1"), "where") != Expression.of(Column("a + 2"), "where")
    one = Expression.of(Column("a + 1"), "where")
    assert Expression.of(Column("a + 1"), "where") == one


def test_columns_that_are_gone_are_forgotten() -> None:
    """Whoever asks a collection again and again asks with ever new ones."""
    before = there()
    kept = Expression.of(Column("kept"), "where")
    for number in range(100):
        Expression.of(Column(f"a > {number}"), "where")
    assert there() - before == {str(kept)}
    del kept
    assert there() <= before


def test_threads_that_ask_at_once_have_one_expression() -> None:
    """One of them could take another's Column for its own only if it saw it."""
    count = 8
    begin, found = threading.Barrier(count), list[Expression]()

    class Slow(Column):
        """Lets another thread go on whenever it is compared."""

        @property
        def _jc(self) -> Slow:
            return self

        def equals(self, other: Slow) -> bool:
            for _ in range(1000):
                pass
            return True

    def ask() -> None:
        begin.wait()
        found.append(Expression.of(Slow("of all"), "where"))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len({id(each.column) for each in found}) == 1


def test_a_column_that_goes_while_others_are_compared_is_forgotten() -> None:
    before = there()
    going: list[object] = []

    class Asking(Column):
        @property
        def _jc(self) -> Asking:
            return self

        def equals(self, other: Asking) -> bool:
            going.clear()
            return False

    first = Expression.of(Asking("asking"), "where")
    going.append(Expression.of(Column("asking"), "where"))
    second = Expression.of(Asking("asking"), "where")
    assert first != second
    assert not going
    assert there() - before == {str(first)}
    assert sum(text == str(first) for alike in expression._columns for text, _ in alike.values()) == 2
    del first, second
    assert there() <= before


def test_a_column_that_is_one_already_is_not_remembered_twice() -> None:
    one = Expression.of(Column("twice"), "where")
    other = Expression.of(Column("twice"), "where")
    assert other.column is one.column
    assert [text for alike in expression._columns for text, _ in alike.values()].count(str(one)) == 1
