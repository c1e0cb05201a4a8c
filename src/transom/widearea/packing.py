"""The form of parcels on a link."""

from __future__ import annotations

from typing import Protocol

from transom.widearea.parcels import Parcel


class Packing(Protocol):
    """Makes bytes of the parcels of a link, and parcels of bytes; knows what went before."""

    def pack(self, parcel: Parcel, full: bool) -> bytes:
        """Return the bytes of a parcel; in full if they have to be readable without anything before."""

    def named(self, number: int) -> None:
        """Learn the number that the parcel packed last has on the link."""

    def confirmed(self, number: int) -> None:
        """Learn that the other end has read a parcel: what it brought may be referred to."""

    def broken(self) -> None:
        """Forget what was confirmed: the connection broke."""

    def unpack(self, data: bytes) -> Parcel | None:
        """Return the parcel of some bytes; None where they refer to what is forgotten.

        Raises:
            SiteError: They are damaged, or larger than allowed.
        """


class PlainPacking:
    """Parcels as they are."""

    def pack(self, parcel: Parcel, full: bool) -> bytes:
        """Return its bytes."""
        return parcel.to_bytes()

    def named(self, number: int) -> None:
        """Nothing refers to it."""

    def confirmed(self, number: int) -> None:
        """Nothing refers to it."""

    def broken(self) -> None:
        """Nothing is forgotten."""

    def unpack(self, data: bytes) -> Parcel | None:
        """Return the parcel."""
        return Parcel.from_bytes(data)
