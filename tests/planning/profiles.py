"""Profiles for the tests of planning: streams with costs like those that are measured."""

from __future__ import annotations

from hypothesis import strategies as st

from transom.model.phases import Phase
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.keys import KeyCurve
from transom.planning.profile import Equipment, PhaseCost, Profile, StreamProfile

KEYS = KeyCurve(((100.0, 60.0), (10_000.0, 900.0), (1_000_000.0, 4_000.0)))


def stream(row: float = 4e-6, fixed: float = 1.0, scv: float = 0.02, **values) -> StreamProfile:
    costs = {
        Phase.LOOK: PhaseCost(0.025, 0.0, 0.33),
        Phase.PLAN: PhaseCost(0.06 * fixed, 0.0, scv),
        Phase.LAUNCH: PhaseCost(0.01 * fixed, 0.004 * fixed, scv),
        Phase.MAP: PhaseCost(0.03 * fixed, row, scv),
        Phase.EXCHANGE: PhaseCost(0.02 * fixed, 1e-6, scv),
        Phase.COLLECT: PhaseCost(0.01 * fixed, 2e-6, scv),
        Phase.COMMIT: PhaseCost(0.015 * fixed, 1e-6, scv),
        Phase.CLOSE: PhaseCost(0.005 * fixed, 0.0, scv),
        Phase.CONSOLIDATE: PhaseCost(0.005 * fixed, 2e-6, scv),
        Phase.DELIVER: PhaseCost(0.01 * fixed, 5e-6, scv),
    }
    given = {"keys": KEYS, "merged": 5_000.0, "results": 1_000.0, "limit": 2.0, "cuts": 100, **values}
    return StreamProfile(costs, **given)


def profile(**streams: StreamProfile) -> Profile:
    return Profile("job", Equipment(2), streams or {"s": stream()})


def tuning(known: Profile, trigger: float = 0.2, slots: int = 2, **values) -> Tuning:
    each = StreamTuning(round(trigger * 1e6), **values)
    return Tuning(slots, dict.fromkeys(known.streams, each))


costs_of_streams = st.builds(
    stream,
    row=st.floats(1e-7, 1e-4),
    fixed=st.floats(0.1, 5),
    scv=st.floats(0, 0.5),
    piece=st.sampled_from([0.0, 0.25, 1.0]),
    regular=st.floats(0, 1),
    uneven=st.sampled_from([0.0, 0.3]),
    closing=st.floats(1, 60),
    groups=st.integers(1, 8),
)
"""Streams whose phases cost anything that is plausible."""
