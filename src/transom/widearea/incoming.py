"""The receiving end of a link: frames become parcels again."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from transom.errors import SiteError
from transom.model.time import Micros
from transom.widearea.links import REMEDY, Frame, Receipt

MOST_PARCEL = 1 << 30
"""The largest parcel that is taken, bytes."""
MOST_OPEN = 64
"""Unfinished parcels that it keeps."""


class LinkIn:
    """The receiving end of a link: makes parcels of frames; outlives its connections.

    Args:
        most_parcel: The largest parcel that is taken, bytes.
        most_bytes: Of all unfinished ones together.
        most_open: Of unfinished ones.
    """

    def __init__(
        self, most_parcel: int = MOST_PARCEL, most_bytes: int = MOST_PARCEL, most_open: int = MOST_OPEN
    ) -> None:
        self.most_parcel, self.most_bytes, self.most_open = most_parcel, most_bytes, most_open
        self._open: dict[int, tuple[int, bytearray]] = {}
        self._done: dict[int, int] = {}
        """Sizes of the last parcels that were received as a whole: their receipts may be lost."""

    @property
    def received(self) -> dict[int, int]:
        """What there is of each parcel, for the opening of a connection."""
        return {**self._done, **{number: len(data) for number, (_, data) in self._open.items()}}

    @property
    def nbytes(self) -> int:
        """Bytes of unfinished parcels."""
        return sum(len(data) for _, data in self._open.values())

    def frame(self, frame: Frame, at: Micros) -> tuple[Receipt, bytes | None]:
        """Take a frame; return the receipt, and the parcel when all of it is there.

        Args:
            frame: What came.
            at: When it did, by any clock that is not set.

        Raises:
            SiteError: It is damaged, larger than it may be, or does not go on where the last one ended; the connection
                has to be closed.
        """
        if frame.total > self.most_parcel or frame.total <= 0:
            raise SiteError(
                f"A parcel declares {frame.total} bytes, where 1 to {self.most_parcel} are allowed.",
                "Send more often, or allow more.",
            )
        if zlib.crc32(frame.payload) != frame.crc:
            raise SiteError("A frame has a wrong checksum.", REMEDY)
        total, data = self._open.get(frame.number, (frame.total, bytearray()))
        if frame.number in self._done or total != frame.total or frame.offset != len(data) or not frame.payload:
            raise SiteError(
                f"A frame of parcel {frame.number} is at byte {frame.offset}, where {len(data)} have come.", REMEDY
            )
        if len(data) + len(frame.payload) > total:
            raise SiteError(f"A parcel of {total} bytes goes on behind its end.", REMEDY)
        if frame.number not in self._open:
            if len(self._open) >= self.most_open:
                raise SiteError(f"More than {self.most_open} parcels are under way at once.", REMEDY)
            self._open[frame.number] = (total, data)
        if self.nbytes + len(frame.payload) > self.most_bytes:
            raise SiteError(f"Unfinished parcels take more than {self.most_bytes} bytes.", "Send more often.")
        data += frame.payload
        receipt = Receipt(frame.number, len(data), at, at)
        if len(data) < total:
            return receipt, None
        del self._open[frame.number]
        self._done[frame.number] = total
        while len(self._done) > self.most_open:
            del self._done[next(iter(self._done))]
        return receipt, bytes(data)

    def unread(self, number: int) -> None:
        """Forget that a parcel was received: it could not be read."""
        self._done.pop(number, None)

    def abandon(self, number: int) -> None:
        """Forget an unfinished parcel."""
        self._open.pop(number, None)

    def keep_only(self, numbers: Iterable[int]) -> None:
        """Forget what the sending end does not have any more."""
        kept = set(numbers)
        self._open = {number: each for number, each in self._open.items() if number in kept}
