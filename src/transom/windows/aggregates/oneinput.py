"""The common part of primitives and aggregates of one expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
class SmallPrimitive(OneInput):
    """A primitive of one expression whose state is a few numbers."""

    @property
    def small(self) -> bool:
        """A few numbers."""
        return True


@dataclass(frozen=True)
class OneInputAggregate(OneInput, Filterable):
    """An aggregate of one expression; nothing has no mean, spread, quantile, extreme, first or last row."""

    @property
    def zero(self) -> Any:
        """None, unless the aggregate knows what it makes of nothing."""
        return None
