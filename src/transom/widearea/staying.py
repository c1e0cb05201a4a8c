"""Whether the last plan stays: ways do not change for noise, nor for what nobody sees, and what sites were told holds.

Two plans are compared flow by flow, and by what a plan can change: the wait for a departure and the way. The time of a
source's job is the same for both, and so is what other flows take; beside them a way that takes twice as long is a few
percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transom.widearea.flows import Flow
from transom.widearea.objectives import Worth
from transom.widearea.plans import Plan, Route
from transom.widearea.problem import TOLERANCE, Column, Problem

GAIN = 0.1
"""A plan gives way to one that is better by this share: where that is latency, of what a flow takes without its job, or
of its limit if that is less."""
NOISE = 0.15
"""So much longer or shorter than predicted a way may take: rates and sizes are measured."""
AGAINST = 2.0
"""What flows gain clearly is so many times what others lose, at least."""
KEPT = 1.12
"""A plan that is there may take so much of what a new one may: 5 % more of rates and 5 % less of a link are noise. With
a headroom of 0.8 that is 0.9 of the measured bandwidth, and never more than all that frames and TLS leave of it."""
SPARE = 0.25
"""Ticks beside noise that a relay may have to wait longer than it was told: half of what it waits beyond that anyway.
"""
LONGER = 1.5
"""Times that what follows a departure may be longer than sites were told: after three times they send it again."""


def carried(problem: Problem, new: Sequence[Column], old: Sequence[Column]) -> bool:
    """Tell whether links carry old columns, which leave no flow out that new ones have."""
    if not {column.flow for column in new} <= {column.flow for column in old}:
        return False
    most = np.minimum(KEPT * problem.capacity, problem.speed * (1 + TOLERANCE))
    return bool((problem.use(old) <= most).all())


def is_better(worth: Worth, found: Plan, same: Plan) -> bool:
    """Tell whether a plan for latency is so much better than another one that ways are to change.

    Args:
        worth: Of the objective.
        found: The best plan, with what is predicted of it.
        same: One with the ways of the last plan, which has all flows that the best one has.
    """
    won = lost = 0.0
    before = {route.flow: route for route in same.routes}
    tick, numbers = worth.problem.topology.tick, {flow.name: at for at, flow in enumerate(worth.problem.flows)}
    for route in found.routes:
        number = numbers[route.flow]
        flow = worth.problem.flows[number]
        one, other = (_took(flow, each, tick) for each in (route, before[route.flow]))
        change = worth.value_of(number, one.latency) - worth.value_of(number, other.latency)
        lost += max(0.0, -change)
        won += change if change > 0 and _clearly(flow, one, other) else 0.0
    return won > AGAINST * lost


class _Took(NamedTuple):
    """A latency, and the parts of it that differ by plan, seconds."""

    latency: float
    gathering: float
    under_way: float


def _took(flow: Flow, route: Route, tick: float) -> _Took:
    gathering = route.interval * tick
    return _Took(route.latency, gathering, route.latency - gathering - flow.job)


def _clearly(flow: Flow, one: _Took, other: _Took) -> bool:
    """Tell whether a flow takes less than otherwise whatever is noise, and somebody sees it."""
    surely = one.gathering + (1 + NOISE) * one.under_way < other.gathering + (1 - NOISE) * other.under_way
    seen = other.latency - one.latency >= GAIN * min(other.gathering + other.under_way, flow.limit)
    return surely and (seen or one.latency <= flow.limit < other.latency)


def is_as_told(found: Plan, last: Plan, tick: float) -> bool:
    """Tell whether what sites wait for is still as the last plan said: relays for others, and sources for acks.

    Args:
        found: The ways of the last plan, with what is predicted of them now.
        last: What sites were told.
        tick: Seconds.
    """
    told = {route.flow: route for route in last.routes}
    for route in found.routes:
        before = told[route.flow]
        took = [each.latency - each.interval * tick for each in (before, route)]
        gathered = before.gather * (1 + NOISE) / (1 - NOISE) + SPARE * tick
        if route.gather > gathered or took[1] > LONGER * max(took[0], tick / 2):
            return False
    return True
