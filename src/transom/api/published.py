"""What became of a query after it was built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transom.model.time import Micros

if TYPE_CHECKING:
    from transom.api.streams import Stream


@dataclass(eq=False)
class Published:
    """The fate of a query after it was built."""

    label: str | None = None
    results: Stream | None = None
    late: tuple[Micros, Stream] | None = None
    """Its late rows, with the distance of their watermark."""
