"""Parcels of the flow `f` and where it stands, for tests of one part of the protocol."""

from __future__ import annotations

from transom.widearea.parcels import Parcel, Part, Place, Standing

S = 1_000_000


def part(site: str, after: int, upto: int, step: int = 1, epoch: int = 1, acked: int = 0, since: int = 0) -> Part:
    return Part(site, f"ck-{site}", epoch, after, upto, step, since, acked)


def parcel(*parts: Part, tick: int = 1) -> Parcel:
    body = ",".join(f"{each.site}{cut}" for each in parts for cut in range(each.after + 1, each.upto + 1))
    return Parcel("f", tick, tuple(sorted(parts, key=lambda each: each.site)), body.encode())


def standing(site: str, upto: int, epoch: int = 1, step: int = 1) -> Standing:
    return Standing("f", site, f"ck-{site}", Place(upto, epoch, step))
