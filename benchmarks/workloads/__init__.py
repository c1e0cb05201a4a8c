"""The workloads of the Klink paper (section 6.1): the Yahoo streaming benchmark, Linear Road, New York taxis."""

from benchmarks.workloads.base import Workload
from benchmarks.workloads.everyday import EVERYDAY
from benchmarks.workloads.linear_road import LINEAR_ROAD
from benchmarks.workloads.taxi import TAXI
from benchmarks.workloads.yahoo import YAHOO, YAHOO_LONG

WORKLOADS: dict[str, Workload] = {each.name: each for each in (YAHOO, YAHOO_LONG, TAXI, LINEAR_ROAD, *EVERYDAY)}
"""By name."""
