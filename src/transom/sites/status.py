"""How a site stands with the others, as values for people and programs: written beside the loop, read by a command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.engine.loop.loop import Loop
from transom.engine.streams.stream import RunningStream
from transom.errors import CheckpointError
from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.sites.arriving import ArrivingSource
from transom.storage.durable import replacing
from transom.widearea.carriers import Carrier
from transom.widearea.topology import Site

if TYPE_CHECKING:
    from transom.sites.relaying import Relaying
    from transom.sites.shipments import Shipment
    from transom.sites.shipping import Shipping

EVERY: Micros = MICROS_PER_SECOND
"""It is written so often."""
FILE = "status.json"


def status_of(shipping: Shipping, loop: Loop, rates: Mapping[Site, float], at: Micros, now: Micros) -> dict[str, Any]:
    """Return how a site stands.

    Args:
        shipping: What goes on beside its loop.
        loop: The loop.
        rates: Of the links to its neighbours, as stated; bytes per second.
        at: Wall time.
        now: Monotonic time.
    """
    return {
        "site": shipping.here.site,
        "at": at,
        "plan": shipping.routes.version,
        "coordinator": None if shipping.planning is None else shipping.planning.refused,
        "links": [_link(shipping.carrier, there, rate, now) for there, rate in sorted(rates.items())],
        "leaving": [_leaving(shipping, each, at) for each in shipping.shipments.values()],
        "arriving": [
            _arriving(loop, loop.streams[flow.arriving], shipping.receiving.sources[flow.name])
            for flow in shipping.flows.values()
            if flow.name in shipping.receiving.sources and flow.arriving in loop.streams
        ],
        "waits": list(shipping.telling.waits),
    }


def relay_status_of(relaying: Relaying, rates: Mapping[Site, float], at: Micros, now: Micros) -> dict[str, Any]:
    """Return how a site stands that only passes on; see `status_of`."""
    return {
        "site": relaying.site,
        "at": at,
        "plan": relaying.routes.version,
        "coordinator": None if relaying.planning is None else relaying.planning.refused,
        "links": [_link(relaying.carrier, there, rate, now) for there, rate in sorted(rates.items())],
        "leaving": [],
        "arriving": [],
        "waits": [],
    }


def _link(carrier: Carrier, there: Site, stated: float, now: Micros) -> dict[str, Any]:
    out = carrier.link(there)
    return {
        "to": there,
        "open": there in carrier.open,
        "stated": stated,
        "measured": out.rate,
        "used": out.used(now),
        "queued_bytes": out.queued,
    }


def _leaving(shipping: Shipping, each: Shipment, at: Micros) -> dict[str, Any]:
    leaving, flow = each.stream.definition.leaving, each.flow
    tick = 0 if leaving is None else leaving.ticks.number(at)
    route = shipping.routes.route(flow.name, tick)
    refusal = each.sender.refusal
    return {
        "flow": flow.name,
        "queries": [query.name for query in flow.queries],
        "destination": flow.destination,
        "tree": [list(pair) for pair in route.tree.parents],
        "interval_micros": route.interval * shipping.routes.tick,
        "parcel_bytes": shipping.carrier.parcel_bytes.get(flow.name),
        "latency_seconds": route.latency,
        "limit_micros": shipping.routes.flows[flow.name].limit or None,
        "committed_cut": each.gathered.committed,
        "fixed_cut": each.gathered.left,
        "arrived_cut": each.sender.acked,
        "outbox_bytes": each.gathered.nbytes,
        "refused": None if refusal is None else f"{refusal.detail} {refusal.reason.remedy}".strip(),
    }


def _arriving(loop: Loop, stream: RunningStream, source: ArrivingSource) -> dict[str, Any]:
    late = {query.name: dict(loop.metrics.late_at(query.name)) for query in stream.definition.queries}
    watermark = stream.state.watermark.value
    return {
        "flow": source.flow,
        "queries": [query.name for query in stream.definition.queries],
        "sources": {each.site: each.place.upto for each in source.standings()},
        "silent": list(source.silent),
        "left_out": left_out(stream),
        "watermark": None if watermark <= MIN_TIME else watermark,
        "held_back_by": held_back_by(stream, source),
        "inbox_bytes": source.waiting_bytes(stream.state.offset),
        "late_rows": {query: sites for query, sites in late.items() if sites},
    }


def held_back_by(stream: RunningStream, source: ArrivingSource) -> Site | None:
    """Return the site whose event time is the least, so that windows wait for it; None where no window is open."""
    if not stream.has_open_windows() and not source.silent:
        return None
    after, newest = stream.definition.policy.idle_after, stream.state.watermark.newest
    found: list[tuple[Micros, Site]] = []
    idle = source.idle(stream.state.offset)
    out = left_out(stream)
    for index, (site, _) in enumerate(source.inbox.known.partitions):
        length = idle[index]
        if site in out:
            continue
        if after is None or length is None or length < after:
            moment = newest[index] if index < len(newest) else None
            found.append((MIN_TIME if moment is None else moment, site))
    return min(found)[1] if found else None


def left_out(stream: RunningStream) -> list[Site]:
    """Return the sites for whose rows windows do not wait."""
    return sorted(site for site, each in (stream.state.missing or {}).items() if each.out)


def write_status(directory: Path, status: Mapping[str, Any]) -> None:
    """Write it, so that whoever reads sees all of it."""
    with replacing(directory / FILE, sync=False) as file:
        file.write(json.dumps(status).encode())


def read_status(checkpoint: Path) -> dict[str, Any]:
    """Return what was written last into the checkpoint of a site.

    Raises:
        CheckpointError: There is nothing, or it cannot be read.
    """
    path = checkpoint / "sites" / FILE
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(
            f"The checkpoint {checkpoint} knows nothing of other sites.",
            "Give the file of a site that has run: transom sites SITE.toml.",
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"The file {path} cannot be read: {error}.", "Run the site; it is written anew."
        ) from error
    return found
