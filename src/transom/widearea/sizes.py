"""How large partials are (the U of the paper), from parcels as they were sent and sketches of what is in them.

The sizes after one tick, two, and so on come for free while a parcel gathers. What longer intervals and merges over
sites give follows from theta sketches of (pane, key): one of 4 kB for each site and flow a minute, by turns of one
length or another, whose unions say how much sites have in common. The paper's straight line was fitted on 5 to 50 MB;
near nothing it promises more than the text itself, so a line is taken only where it fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np
from datasketches import compact_theta_sketch, theta_union

from transom.errors import DefinitionError
from transom.widearea.flows import Floats
from transom.widearea.topology import INTERVALS, Site

NOMINAL = 9
"""Sketches have two to the power of so many entries: 4 kB, and a standard error of 4.4 %."""
STRAIGHT = 0.03
"""A line is taken if it is nowhere off by more than this share."""
_TICKS = np.array(INTERVALS, dtype=np.float64)


@dataclass(frozen=True)
class Observed:
    """What is known of the partials of one site for a flow."""

    sent: Mapping[int, float]
    """Bytes of parcels, by the ticks that they gathered; means over many."""
    sketches: Mapping[int, bytes] = field(default_factory=dict)
    """Serialized theta sketches of (pane, key), by the ticks that they gathered."""


class MeasuredSizes:
    """Sizes that follow from what was observed at all sources."""

    def __init__(self, observed: Mapping[Site, Observed]) -> None:
        for site, seen in observed.items():
            if not seen.sent or min(*seen.sent, *seen.sketches, 1) < 1:
                raise DefinitionError(f"No parcel of {site!r} was measured.", "Measure one after at least one tick.")
        self._observed = dict(observed)
        self._entries = {
            site: {ticks: _estimate([sketch]) for ticks, sketch in seen.sketches.items()}
            for site, seen in observed.items()
        }
        self._single = {site: self._alone(site) for site in observed}
        self._known: dict[frozenset[Site], Floats] = {}

    def of(self, sources: frozenset[Site]) -> Floats:
        """Return bytes after each of `INTERVALS` ticks: monotone, of one site concave and through zero.

        Raises:
            DefinitionError: Nothing was observed at one of the sources.
        """
        if missing := sources - self._observed.keys():
            raise DefinitionError(f"Nothing was observed at {min(missing)!r}.", "Give what each source of a flow sent.")
        found = self._known.get(sources)
        if found is None:
            found = self._known[sources] = self._merged(sources)
        return found

    def _alone(self, site: Site) -> Floats:
        seen, entries = self._observed[site], self._entries[site]
        ticks = np.array(sorted(seen.sent), dtype=np.float64)
        size = np.maximum.accumulate([seen.sent[int(each)] for each in ticks])
        known = np.interp(_TICKS, np.concatenate([[0.0], ticks]), np.concatenate([[0.0], size]))
        longer = ticks[-1] < _TICKS
        spans = np.array(sorted(entries), dtype=np.float64)
        if len(spans):
            counts = np.maximum.accumulate([max(entries[int(each)], 1.0) for each in spans])
            grown = _between(np.append(_TICKS, ticks[-1]), spans, counts)
            known[longer] = size[-1] * (grown[:-1] / grown[-1])[longer]
        else:
            known[longer] = size[-1] * _TICKS[longer] / ticks[-1]  # never too little
        return _shaped(known)

    def _merged(self, sources: frozenset[Site]) -> Floats:
        singles = np.array([self._single[site] for site in sorted(sources)])
        total: Floats = singles.sum(axis=0)
        if len(sources) == 1:
            return total
        spans = sorted(set.intersection(*(set(self._observed[site].sketches) for site in sources)))
        if not spans:
            return total
        parts = []
        for span in spans:
            apart = sum(self._entries[site][span] for site in sources)
            together = _estimate([self._observed[site].sketches[span] for site in sorted(sources)])
            parts.append(together / apart if apart > 0 else 1.0)
        ratio = np.interp(np.log(_TICKS), np.log(spans), parts)
        return np.clip(_shaped(total * ratio), singles.max(axis=0), total)


def _estimate(sketches: list[bytes]) -> float:
    """Return the distinct entries of some sketches together.

    Raises:
        ValueError: One of them is none.
    """
    union = theta_union(NOMINAL)
    try:
        for sketch in sketches:
            union.update(compact_theta_sketch.deserialize(sketch))
        found = float(union.get_result().get_estimate())
    except (ValueError, RuntimeError, LookupError, MemoryError) as error:
        raise ValueError(f"This is no sketch: {error}.") from error
    if not 0 <= found < inf:
        raise ValueError(f"A sketch has {found} entries.")
    return found


def _between(ticks: Floats, spans: Floats, counts: Floats) -> Floats:
    """Return counts between and beyond known ones, on straight lines of logarithms; steeper than 1 at no place."""
    logs, values = np.log(spans), np.log(counts)
    found = np.interp(np.log(ticks), logs, values)
    end = min(1.0, (values[-1] - values[-2]) / (logs[-1] - logs[-2])) if len(spans) > 1 else 1.0
    found += np.maximum(np.log(ticks) - logs[-1], 0.0) * end
    found -= np.maximum(logs[0] - np.log(ticks), 0.0)
    result: Floats = np.exp(found)
    return result


def _shaped(size: Floats) -> Floats:
    """Return a line if one fits, else the least concave monotone curve through zero that is nowhere smaller."""
    slope, base = (float(each) for each in np.polyfit(_TICKS, size, 1))
    if min(slope, base) >= 0:
        straight: Floats = base + slope * _TICKS
        if float(np.abs(straight / np.maximum(size, 1e-9) - 1).max()) <= STRAIGHT:
            return straight
    ticks, values = np.append(0.0, _TICKS), np.append(0.0, np.maximum.accumulate(size))
    hull = [0]
    for at in range(1, len(ticks)):
        while len(hull) > 1 and _slope(ticks, values, hull[-2], hull[-1]) <= _slope(ticks, values, hull[-1], at):
            hull.pop()
        hull.append(at)
    found: Floats = np.interp(_TICKS, ticks[hull], values[hull])
    return found


def _slope(ticks: Floats, values: Floats, first: int, second: int) -> float:
    return float((values[second] - values[first]) / (ticks[second] - ticks[first]))
