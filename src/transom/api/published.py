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
    wanted: str | None = None
    """The name that it is to have without a sink, as any of those who read it said."""
    results: Stream | None = None
    early_results: Stream | None = None
    """Its results, early ones too."""
    late: tuple[Micros, Stream] | None = None
    """Its late rows, with the distance of their watermark."""
