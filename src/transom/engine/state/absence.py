"""Sites without which windows close, as nothing is heard of them: who they are, and which results lack them. Pure.

A site that is left out does not hold back the watermark. When it is heard again windows wait for it again; until it has
caught up with them it stays among those that are missing, as results that are corrected meanwhile may lack its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from transom.engine.state.watermarks import WatermarkState
from transom.model.time import MIN_TIME, Micros
from transom.model.watermark import WatermarkPolicy
from transom.windows.query import WINDOW_END

MISSING = "missing"
"""The column of results with the sites that they lack."""


@dataclass(frozen=True)
class LeftOut:
    """A site of which rows may be missing in windows."""

    reached: Micros
    """Windows that end up to here have all that its watermark promised; MIN_TIME where there are none."""
    out: bool
    """Whether windows do not wait for it; else it has been heard again, and is behind."""


Missing: TypeAlias = Mapping[str, LeftOut]
"""By site, those that are left out or behind."""


@dataclass(frozen=True)
class Heard:
    """What is known of the sites that have the rows of a stream, at one moment of this run."""

    owners: Sequence[str]
    """The site of each source partition."""
    silence: Mapping[str, Micros]
    """For how long nothing has come of each site that was heard in this run; 0 where something waits to be taken."""
    waited: Micros
    """The same for all others: how long this run has listened."""

    def for_how_long(self, site: str) -> Micros:
        """Return for how long nothing has come of a site."""
        return self.silence.get(site, self.waited)


def missing_now(
    policy: WatermarkPolicy, watermark: WatermarkState, idle: Sequence[Micros | None], heard: Heard, before: Missing
) -> dict[str, LeftOut]:
    """Return who is left out, or behind, from the next cut on.

    Args:
        policy: What the user asked for.
        watermark: As of the committed cuts.
        idle: For how long each source partition is said to be empty; None where rows wait.
        heard: What is known of the sites.
        before: What the last cut said: who was left out stays so until it is heard.
    """
    found: dict[str, LeftOut] = {}
    if policy.absent_after is None:
        return found
    for site in dict.fromkeys(heard.owners):
        mine = [index for index, owner in enumerate(heard.owners) if owner == site]
        was = before.get(site)
        stays = was is not None and was.out and site not in heard.silence
        out = stays or heard.for_how_long(site) >= policy.absent_after
        its, lengths = watermark.narrowed(idle, mine)
        if out or (was is not None and its.waits(policy, lengths)):
            reached = its.derived(policy, lengths)
            found[site] = LeftOut(MIN_TIME if reached is None else reached, out)
    return found


def partitions_out(owners: Sequence[str], missing: Missing) -> frozenset[int]:
    """Return the source partitions that do not hold back the watermark."""
    return frozenset(index for index, owner in enumerate(owners) if owner in missing and missing[owner].out)


def with_missing(table: pa.Table, missing: Missing) -> pa.Table:
    """Return results with the sites that each lacks: those that had not come to the end of its window."""
    sites = sorted(missing)
    ends = table.column(WINDOW_END).cast(pa.int64()).to_numpy()
    lacks = ends[:, None] > np.array([missing[site].reached for site in sites], np.int64)[None, :]
    offsets = np.concatenate([[0], np.cumsum(lacks.sum(axis=1))]).astype(np.int32)
    names = pa.array(sites, pa.string()).take(pa.array(np.nonzero(lacks)[1]))
    return table.append_column(MISSING, pa.ListArray.from_arrays(pa.array(offsets), names))


def missing_to_json(missing: Missing) -> dict[str, Any]:
    """Return it as JSON."""
    return {site: [each.reached, each.out] for site, each in missing.items()}


def missing_from_json(value: Mapping[str, Any]) -> dict[str, LeftOut]:
    """Return what `missing_to_json` wrote."""
    return {site: LeftOut(reached, out) for site, (reached, out) in value.items()}
