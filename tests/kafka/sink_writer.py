"""Writes results of one cut after the other to a topic, until it is killed; says "ready" and then each cut's number.

python sink_writer.py SERVERS TOPIC CUTS
"""

from __future__ import annotations

import sys

import pyarrow as pa

from transom.sinks.base import WindowResults
from transom.sinks.owner import Claim, Owner
from transom.sinks.topics import kafka

OWNER = Owner("c", "q", "/c")
ROWS = 20


def results(cut: int, query: str = "q") -> WindowResults:
    moments = pa.array([cut * 1_000_000] * ROWS, pa.timestamp("us", "UTC"))
    columns = {"window_start": moments, "window_end": moments, "zone": [f"z{i % 3}" for i in range(ROWS)]}
    return WindowResults(query, cut, pa.table({**columns, "n": [cut * 100 + i for i in range(ROWS)]}), ("zone",))


if __name__ == "__main__":
    sink = kafka(sys.argv[1], sys.argv[2], ["zone"])
    sink.open("q")
    sink.claim(Claim(OWNER))
    sink.recover("q", 1_000_000)
    print("ready", flush=True)
    for number in range(int(sys.argv[3])):  # what is there already is left out by the sink itself
        sink.write(results(number))
        print(number, flush=True)
    sink.close()
