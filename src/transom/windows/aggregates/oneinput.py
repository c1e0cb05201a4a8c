"""The common parts of primitives and aggregates of one expression, or of two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from transom.model.expression import Expression
from transom.windows.aggregates.filtered import Filterable


@dataclass(frozen=True)
class OneInput:
    """A primitive or an aggregate of one expression."""

    x: Expression

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The expression that is summed, compared, measured, counted or collected."""
        return (self.x,)


@dataclass(frozen=True)
class TwoInputs:
    """A primitive or an aggregate of two expressions."""

    x: Expression
    y: Expression

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """Both."""
        return (self.x, self.y)


class Small:
    """A primitive whose state is a few values."""

    @property
    def small(self) -> bool:
        """A few values."""
        return True

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return nothing: any values can be those of rows."""
        return ""


class WithoutZero(Filterable):
    """An aggregate of which nothing has none: no mean, spread, quantile, extreme, first or last row, no correlation."""

    @property
    def zero(self) -> Any:
        """None, unless the aggregate knows what it makes of nothing."""
        return None


@dataclass(frozen=True)
class SmallPrimitive(OneInput, Small):
    """A primitive of one expression whose state is a few values."""


@dataclass(frozen=True)
class OneInputAggregate(OneInput, WithoutZero):
    """An aggregate of one expression."""


@dataclass(frozen=True)
class TwoInputAggregate(TwoInputs, WithoutZero):
    """An aggregate of two expressions."""
