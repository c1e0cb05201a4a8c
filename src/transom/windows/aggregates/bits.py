"""bit_and, bit_or and bit_xor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from transom.windows.aggregates.base import Primitive
from transom.windows.aggregates.onevalue import OneValue, OneValueOf
from transom.windows.aggregates.values import Values

Function = Literal["bit_and", "bit_or", "bit_xor"]
_JOINED: dict[str, Any] = {"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}


@dataclass(frozen=True)
class Bits(OneValue):
    """The bits of the values that are not null, joined; integers of the input's type."""

    kind = "bits.1"

    function: Function

    def joined(self, left: Values, right: Values) -> Values:
        """Return the joined bits."""
        bits: Values = _JOINED[self.function](left, right)
        return bits


@dataclass(frozen=True)
class BitsOf(OneValueOf):
    """The aggregates `bit_and`, `bit_or`, `bit_xor`: the input's type; null without values."""

    function: Function

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The bits."""
        return (Bits(self.x, self.function),)
