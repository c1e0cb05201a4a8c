"""Values that users give."""

from __future__ import annotations

from typing import Any

import pytest

from transom.errors import DefinitionError
from transom.model.arguments import column_names, shown, text, whole_number


def test_what_fits_is_given_back() -> None:
    assert whole_number(0, "n", least=0) == 0
    assert text("a", "name") == "a"
    assert column_names(["a", "b"], "keys") == ("a", "b")
    assert column_names(iter("ab"), "keys") == ("a", "b")


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (whole_number, 0, r"x is 0 \(int\). Give a whole number, at least 1"),
        (whole_number, 1.0, r"x is 1.0 \(float\)"),
        (whole_number, True, r"x is True \(bool\)"),
        (text, "", "x is ''"),
        (text, None, r"x is None \(NoneType\)"),
        (column_names, "abc", r"x is the text 'abc'. Give a list: \['abc'\]"),
        (column_names, 5, "x is 5"),
        (column_names, ["a", 5], r"x\[1\] is 5"),
        (column_names, ["a", "b", "a"], "x has 'a' twice"),
    ],
)
def test_what_does_not_is_named_with_a_remedy(check: Any, value: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        check(value, "x")
    assert caught.value.remedy.startswith("Give")


def test_long_values_are_shortened() -> None:
    assert len(shown("a" * 1_000)) < 70
