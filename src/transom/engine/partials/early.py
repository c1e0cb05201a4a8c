"""What a job makes of the early results that a stream reads: partials that count until others take their place."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class EarlyPartials:
    """Partials of all early results that a stream reads, as of a cut; none of them counts once the next are there."""

    tables: tuple[pa.Table, ...] = ()
    """Partials that say what they are (`PartialTable`); none where there are no early results."""
    failure: str | None = None
    """Why they are not known."""
