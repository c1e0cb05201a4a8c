"""For how long, and for what, the rows of a cut have waited: means over rows that came one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from transom.model.phases import Phase
from transom.model.time import MICROS_PER_SECOND, Micros


def mean_waits(
    line: Sequence[tuple[Micros, Phase]], until: Micros, oldest: Micros, newest: Micros
) -> dict[Phase, float]:
    """Return the seconds that a row has waited on average in each phase; as if rows had come evenly.

    With arrivals spread evenly over [oldest, newest], a row waits (until - a)+ after its arrival a, and the mean of
    (x - a)+ over them is what a span that ends at x has of it; a span [u, v) has the difference of those of v and u.

    Args:
        line: What a stream waited for from each moment on, in order.
        until: The start of its cut, when the last span ends.
        oldest: Arrival of the first row.
        newest: Arrival of the last row, not before.

    >>> line = [(0, Phase.LOOK), (1_000_000, Phase.TURN)]
    >>> [round(each, 3) for each in mean_waits(line, 3_000_000, 0, 2_000_000).values()]
    [0.25, 1.75]
    """

    def mean_until(x: Micros) -> float:
        if newest <= oldest:
            return float(max(0, x - oldest))
        first, last = max(0, x - oldest), max(0, x - newest)
        return (first * first - last * last) / (2 * (newest - oldest))

    found: dict[Phase, float] = {}
    ends = [*(begin for begin, _ in line[1:]), until][: len(line)]
    for (begin, phase), end in zip(line, ends, strict=True):
        spent = mean_until(max(begin, end)) - mean_until(begin)
        if spent > 0:
            found[phase] = found.get(phase, 0.0) + spent / MICROS_PER_SECOND
    return found
