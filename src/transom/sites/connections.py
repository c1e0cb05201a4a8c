"""One end of a connection between two sites: what came waits for the loop, what the loop says waits to be sent.

Both are bounded, whatever the other end does. What came and was not taken stops the reading, and so does an end that
sends, and does not read what it is told: TCP then stops it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from transom.errors import SiteError
from transom.model.time import MICROS_PER_SECOND, Micros, SystemClock
from transom.sites.openings import REFUSED, refusal_bytes, refused
from transom.sites.secured import plain
from transom.widearea.links import Receipt
from transom.widearea.messages import MOST_MESSAGE, Opening, from_bytes
from transom.widearea.parcels import Ack
from transom.widearea.topology import Site

WAITING = 64
"""Messages of one connection that wait for the loop; the other end is not read meanwhile."""
MOST_SAID = 1_024
"""Messages that wait to be sent on one connection. Beyond it no more parcels are sent; who has connected is not read,
and is told only what that asks for which was read: at most twice `WAITING` messages more."""
ALIVE = 10.0
"""Seconds after which an end that has nothing to say says so: gRPC ends a connection on which one end asks whether the
other is there (`secured.PING`) and hears nothing else for long."""
_LOOK = 0.2
"""Seconds between two looks whether a connection has ended that nobody can wake."""
_CLOCK = SystemClock()
"""Links take real time, also where an application is given another one."""
_END = b""
_ALIVE = b","
_REMEDY = "Both sites need the same version of the protocol."
_BYE = b"."
"""Said by the end that takes connections: only the other one can close one."""


class Connection:
    """One end of a connection, as the loop knows it.

    Args:
        peer: The other end.
        wake: Called from any thread when there is something for the loop.
        answers: Whether what comes is answered here: only who answers stops to read when too much waits to be sent, or
            both ends could wait for each other.
    """

    def __init__(self, peer: Site, wake: Callable[[], None], answers: bool = False) -> None:
        self.peer, self._wake, self._answers = peer, wake, answers
        self._said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        """To be sent; `_END` ends it."""
        self._sent = threading.Event()
        """Set when something was sent."""
        self._came: queue.Queue[tuple[object, Micros]] = queue.Queue(WAITING)
        """Messages, then an error or None at the end, each with when it came, by this process's clock."""
        self.began = self._heard = _CLOCK.monotonic()
        self.ended = False
        self.served = False
        """Whether Flight's thread has left it."""
        self.taken = False
        """Whether the loop knows it."""
        self._hurries = True

    # ---- on the loop's thread

    @property
    def crowded(self) -> bool:
        """Whether more waits to be sent than may: the other end does not read."""
        return self._said.qsize() >= MOST_SAID

    @property
    def is_heard(self) -> bool:
        """Whether something has come lately: who has nothing to say says so, `ALIVE`."""
        return _CLOCK.monotonic() - self._heard < 3 * ALIVE * MICROS_PER_SECOND

    def hurry(self, hurries: bool) -> None:
        """Say whether the loop is to be woken by receipts: where all was sent they change nothing, nor do acks."""
        begins, self._hurries = hurries and not self._hurries, hurries
        if begins and not self._came.empty():
            self._wake()

    def say(self, data: bytes) -> None:
        """Send a message, in turn."""
        self._said.put(data)

    def take(self) -> list[tuple[object, Micros]]:
        """Return what has come by now; what comes meanwhile is for the next time, however fast it comes."""
        return [self._came.get() for _ in range(self._came.qsize())]

    def end(self, why: SiteError | None = None) -> None:
        """Close it, from this side; the other one hears why. What came and was not taken is forgotten."""
        if why is not None:
            self.say(refusal_bytes(why))
        self.stop()
        with suppress(queue.Empty):
            while True:
                self._came.get_nowait()

    # ---- on threads of the connection

    def stop(self) -> None:
        """Read and send no more, but for what waits to be sent."""
        self.ended = True
        self.say(_END)

    def put(self, message: object) -> None:
        """Give something to the loop, as soon as there is room; nothing once the connection has ended."""
        at = _CLOCK.monotonic()
        while not self.ended:
            with suppress(queue.Full):
                self._came.put((message, at), timeout=_LOOK)
                break
        if self._hurries or not isinstance(message, Receipt | Ack) or self._came.qsize() > WAITING // 2:
            self._wake()

    def receive(self, reader: Any) -> None:
        """Give the loop what comes, until the connection ends or makes no sense."""
        try:
            while self._may_read():
                message = from_bytes(self.read(reader))
                if isinstance(message, Opening):
                    raise SiteError("A connection is opened twice.")
                self.put(message)
        except StopIteration:
            self.put(None)
        except SiteError as error:
            self.put(error)
        except (pa.ArrowException, OSError) as error:
            self.put(SiteError(plain(error)))

    def read(self, reader: Any) -> bytes:
        """Return the next message that comes.

        Raises:
            StopIteration: The connection has ended.
            SiteError: There is something else in it.
        """
        data = _ALIVE
        while data == _ALIVE:
            chunk = reader.read_chunk()
            self._heard = _CLOCK.monotonic()
            if chunk.app_metadata is None or chunk.data is not None or chunk.app_metadata.size > MOST_MESSAGE:
                raise SiteError("Something came that is no message.", _REMEDY)
            data = bytes(chunk.app_metadata.to_pybytes())
        if data == _BYE:
            raise StopIteration
        if data[:1] == REFUSED:
            raise refused(data)
        return data

    def _may_read(self) -> bool:
        """Wait until the other end has read what it was told; tell whether the connection goes on."""
        while self._answers and self.crowded and not self.ended:
            self._sent.clear()
            self._sent.wait(_LOOK)
        return not self.ended

    def send(self, writer: Any) -> None:
        """Send what the loop says, until the connection ends."""
        try:
            while (data := self._next()) != _END:
                writer.write_metadata(pa.py_buffer(data))
                if self._said.qsize() == MOST_SAID - 1:
                    self._wake()  # there is room again
                self._sent.set()
        except (pa.ArrowException, OSError) as error:
            self.put(SiteError(plain(error)))
        finally:
            with suppress(pa.ArrowException, OSError):  # the connection may be gone
                if hasattr(writer, "done_writing"):
                    writer.done_writing()
                else:
                    writer.write_metadata(pa.py_buffer(_BYE))

    def _next(self) -> bytes:
        try:
            return self._said.get(timeout=ALIVE)
        except queue.Empty:
            return _ALIVE
