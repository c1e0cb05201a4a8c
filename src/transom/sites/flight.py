"""The way to other sites by Arrow Flight: one `DoExchange` for each link and direction, with mutual TLS.

Parcels go up a connection, receipts, acks and refusals come down. Flight's threads only turn bytes into messages and
put them into queues; what they mean is decided on the loop's thread, in `look`. A peer is who its certificate says:
the subject alternative name is the name of the site. Nothing that was received is evaluated.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from transom.errors import SiteError
from transom.model.time import Micros, SystemClock
from transom.sites.connections import Connection
from transom.sites.mail import Flows, Listener, Standings
from transom.sites.notices import Notices
from transom.sites.openings import opening_bytes, opening_of, refusal_bytes
from transom.sites.secured import Identity, authority_options, check_address, client_options, plain
from transom.widearea.carriers import Carrier
from transom.widearea.hellos import Hello
from transom.widearea.links import Receipt
from transom.widearea.messages import MOST_MESSAGE, Down, Opened, Opening, to_bytes
from transom.widearea.parcels import Ack, FlowName, Refusal
from transom.widearea.topology import Site

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what is wrong with a connection is said by us
import pyarrow.flight as fl

logger = logging.getLogger(__name__)

RETRY: Micros = 200_000
LONGEST_RETRY: Micros = 2_000_000
"""Between two tries to connect, at least and at most; doubles."""
TIMEOUT = 2.0
"""Seconds that are waited for threads to end."""
MOST_CONNECTIONS = 64
"""Between two sites in one direction, with those that were given up and have not ended: a link that breaks every 15
seconds leaves so many in the quarter of an hour that the system may take to notice."""
UNANSWERED: Micros = 60_000_000
"""After so long a connection is given up whose other end has not said how it stands: its loop may have ended, or hang,
while its threads go on to say that they are there."""
_CLOCK = SystemClock()
"""Links take real time, also where an application is given another one."""


class _Server(fl.FlightServerBase):  # type: ignore[misc]
    """Takes connections; each has a thread of Flight's for what comes, and one for what goes."""

    def __init__(self, mail: FlightMail, location: str, **options: Any) -> None:
        self._mail = mail
        super().__init__(location, **options)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Serve one connection until it ends."""
        try:
            connection = self._mail.admit(context.peer_identity().decode("utf-8", "replace"), descriptor.command or b"")
        except SiteError as error:
            with suppress(pa.ArrowException, OSError):
                writer.write_metadata(pa.py_buffer(refusal_bytes(error)))
            return
        sending = threading.Thread(target=connection.send, args=(writer,), daemon=True, name="transom-site-answers")
        try:
            sending.start()
            connection.receive(reader)
        finally:
            connection.stop()
            if sending.ident is not None:  # else no thread could start
                sending.join()
            connection.served = True


class FlightMail:
    """Moves what a carrier has to say, and brings it what others say (`transom.sites.mail.Mail`).

    Args:
        hello: What this site says of itself.
        listen: Host and port at which it takes connections; port 0 takes a free one.
        addresses: Host and port of each other site.
        identity: Its certificate; None for no TLS at all, on this machine only.
        listener: Hears who the others are; by default flows are not taken that differ from those of this site.

    Raises:
        DefinitionError: Addresses without TLS are not on this machine, or are no addresses.
    """

    def __init__(
        self,
        hello: Hello,
        listen: str,
        addresses: Mapping[Site, str],
        identity: Identity | None,
        listener: Listener | None = None,
    ) -> None:
        self.hello, self.identity, self.listen = hello, identity, listen
        self._listener = listener or self
        self.addresses = dict(addresses)
        for what, address in {"listen": listen, **addresses}.items():
            check_address(what, address, identity)
        self.refusals: list[str] = []
        """Connections and messages that were refused, in words, newest last; for people."""
        self._notices = Notices()
        self._called: dict[Site, list[Connection]] = {}
        """Those that others have opened, by site, until they have ended and were taken; beside `_lock`."""
        self._calls: dict[Site, list[Connection]] = {}
        """Those to others, until they have ended."""
        self._lock = threading.Lock()
        self._arrived: queue.SimpleQueue[tuple[Connection, Opening, Hello]] = queue.SimpleQueue()
        self._in: dict[Site, Connection] = {}
        self._out: dict[Site, Connection] = {}
        self._tries: dict[Site, tuple[Micros, Micros]] = {}
        """By site: when to try next, and how long to wait after that."""
        self._server: _Server | None = None
        self._ended = False
        self._carrier: Carrier
        self._standings: Standings
        self.wake: Callable[[], None] = lambda: None

    @property
    def port(self) -> int:
        """The port at which it takes connections."""
        if self._server is None:
            raise SiteError("The site takes no connections yet.", "Begin first.")
        return int(self._server.port)

    # ---- on the loop's thread

    def begin(self, carrier: Carrier, standings: Standings, wake: Callable[[], None], flows: Flows) -> None:
        """Begin to take connections, and to connect with the others.

        Raises:
            SiteError: The address cannot be taken.
        """
        self._carrier, self._standings, self.wake = carrier, standings, wake
        self.hello = replace(self.hello, flows=flows)
        scheme = "grpc+tcp" if self.identity is None else "grpc+tls"
        try:
            self._server = _Server(self, f"{scheme}://{self.listen}", **authority_options(self.identity))
        except (pa.ArrowException, OSError) as error:
            raise SiteError(
                f"The site {self.hello.site} cannot take connections at {self.listen}: {error}",
                "Give an address of this machine, and a port that no other program has; and look at the certificates.",
            ) from error

    def look(self, now: Micros) -> None:
        """Give the carrier what came, and send what it has to send."""
        while not self._arrived.empty():
            self._accept(*self._arrived.get(), now)
        for connection in list(self._in.values()):
            self._carrier.belief.heard(connection.peer, connection.is_heard)
            self._take(connection, self._in, self._carrier.came, now)
        for connection in list(self._out.values()):
            self._take(connection, self._out, self._heard, now)
        for peer in self._carrier.silent(_CLOCK.monotonic()):
            self._refuse(peer, "it has not answered for a while, and is connected to anew.")
            self._drop(self._out, self._out[peer])
        for peer, connection in list(self._out.items()):
            if peer not in self._carrier.open and _CLOCK.monotonic() - connection.began > UNANSWERED:
                self._refuse(peer, "it has not answered since it was connected to, and is connected to anew.")
                self._drop(self._out, connection)
        self._connect(_CLOCK.monotonic())
        for peer in self._carrier.open:
            if not self._out[peer].crowded:
                for frame in self._carrier.frames(peer, _CLOCK.monotonic()):
                    self._out[peer].say(to_bytes(frame))
            self._out[peer].hurry(self._carrier.link(peer).full)
        for peer, answer in self._carrier.answers():
            if peer in self._in:
                said = replace(answer, said=_CLOCK.monotonic()) if isinstance(answer, Receipt) else answer
                self._answer(self._in[peer], said)

    def _answer(self, connection: Connection, said: Down) -> None:
        """Say something on a connection of another site; acks and refusals, which are asked for again, if it reads."""
        if not connection.crowded or not isinstance(said, Ack | Refusal):
            connection.say(to_bytes(said))
        else:
            self._refuse(connection.peer, "it does not read what it is told; nothing more is read of it until then.")

    def end(self) -> None:
        """Close all connections, and take no more."""
        with self._lock:
            self._ended = True
        while not self._arrived.empty():  # nobody would ever answer on these
            self._arrived.get_nowait()[0].end()
        for connection in [*self._out.values(), *self._in.values()]:
            connection.end()
        self._out.clear()
        self._in.clear()
        server, self._server = self._server, None
        if server is not None:  # it waits for the other ends, which may hang
            ending = threading.Thread(target=server.shutdown, daemon=True, name="transom-site-end")
            with suppress(RuntimeError):  # no thread can start: it ends with the process
                ending.start()
                ending.join(TIMEOUT)

    def _accept(self, connection: Connection, opening: Opening, theirs: Hello, now: Micros) -> None:
        peer, connection.taken = connection.peer, True
        if peer in self._in:
            self._in.pop(peer).end()
        self._in[peer] = connection
        answer = self._carrier.accept(peer, opening, self._standings(), self._listener.called(theirs), now)
        connection.say(json.dumps(self.hello.to_json()).encode())
        connection.say(to_bytes(answer))
        self._tries.pop(peer, None)  # it is there: connect at once

    def called(self, theirs: Hello) -> Mapping[FlowName, str]:
        """Take what a site says that has connected; return the flows that differ here."""
        return self.hello.differs(theirs)

    def answered(self, theirs: Hello) -> None:
        """Take what a site says that was connected with: it is its affair what it takes."""

    def _heard(self, peer: Site, message: Any, now: Micros, at: Micros) -> None:
        if isinstance(message, Hello):
            self._listener.answered(message)
        elif isinstance(message, Opened):
            self._tries.pop(peer, None)
            self._notices.passed(peer)
            self._carrier.opened(peer, message, at)
        elif peer in self._carrier.open:
            self._carrier.heard(peer, message, at)

    def _take(
        self,
        connection: Connection,
        among: dict[Site, Connection],
        give: Callable[[Site, Any, Micros, Micros], None],
        now: Micros,
    ) -> None:
        """Give what came on a connection; close it when it ends or says what makes no sense."""
        for message, at in connection.take():
            if message is None or isinstance(message, Exception):
                if message is not None:
                    self._refuse(connection.peer, message)
                self._drop(among, connection, message if isinstance(message, SiteError) else None)
                return
            try:
                give(connection.peer, message, now, at)
            except SiteError as error:
                self._refuse(connection.peer, error)
                self._drop(among, connection, error)
                return

    def _drop(self, among: dict[Site, Connection], connection: Connection, why: SiteError | None = None) -> None:
        connection.end(why)
        if among.get(connection.peer) is connection:
            del among[connection.peer]
            if among is self._out:
                self._carrier.closed(connection.peer)
            else:
                self._carrier.belief.left(connection.peer)

    def _connect(self, now: Micros) -> None:
        for peer in self.addresses:
            at, wait = self._tries.get(peer, (now, RETRY))
            if peer not in self._out and now >= at:
                self._tries[peer] = (now + wait, min(2 * wait, LONGEST_RETRY))
                self._calls[peer] = there = [each for each in self._calls.get(peer, ()) if not each.served]
                if len(there) >= MOST_CONNECTIONS:
                    self._refuse(peer, f"it has not ended {len(there)} connections that were closed here.")
                    continue
                self._out[peer] = connection = Connection(peer, self.wake)
                there.append(connection)
                arguments = connection, self._carrier.opening(peer)
                try:
                    threading.Thread(target=self._call, args=arguments, daemon=True, name="transom-site").start()
                except RuntimeError as error:
                    connection.put(SiteError(f"It is not connected with: {error}."))
                    connection.served = True

    def _refuse(self, who: Site, what: object) -> None:
        """Note that somebody or something was refused, or cannot be reached; see `Notices`."""
        with self._lock:
            text = self._notices.news(who, f"{who}: {what}", _CLOCK.monotonic())
            if text:
                self.refusals.append(text)
                del self.refusals[:-100]
        if text:
            logger.warning("%s", text)

    # ---- on threads of connections

    def admit(self, identity: Site, command: bytes) -> Connection:
        """Take a connection from a site, or refuse it.

        Raises:
            SiteError: It is not of a site that is known, or cannot be understood.
        """
        try:
            theirs, opening = opening_of(command)
            peer = identity if self.identity is not None else theirs.site
            if theirs.site != peer:
                raise SiteError(
                    f"The certificate is that of {peer!r}, and the site says that it is {theirs.site!r}.",
                    "Give each site a certificate with its name as the only subject alternative name.",
                )
            if peer not in self.addresses:
                raise SiteError(
                    f"{peer!r} is no site that {self.hello.site!r} knows.", "Name it in the topology of both."
                )
            self.hello.check(theirs)
            connection = self._counted(peer, opening, theirs)
        except SiteError as error:
            self._refuse(identity or "somebody", error)
            raise
        self.wake()
        return connection

    def _counted(self, peer: Site, opening: Opening, theirs: Hello) -> Connection:
        """Return a new connection of a site, which waits for the loop.

        Raises:
            SiteError: It has too many, or the loop has ended.
        """
        with self._lock:
            if self._ended:
                raise SiteError(f"{self.hello.site!r} takes no connections any more.")
            there = [each for each in self._called.get(peer, ()) if not (each.served and each.taken)]
            if len(there) >= MOST_CONNECTIONS:
                raise SiteError(
                    f"{peer!r} has {len(there)} connections to {self.hello.site!r}.",
                    "Run one site of that name; those that broke are forgotten by the system after a while.",
                )
            connection = Connection(peer, self.wake, answers=True)
            self._called[peer] = [*there, connection]
            self._arrived.put((connection, opening, theirs))
            return connection

    def _call(self, connection: Connection, opening: Opening) -> None:
        """Connect with a site, and read what it says until the connection ends."""
        peer = connection.peer
        scheme = "grpc+tcp" if self.identity is None else "grpc+tls"
        sending = None
        try:
            options = client_options(self.identity, peer, MOST_MESSAGE)
            with fl.FlightClient(f"{scheme}://{self.addresses[peer]}", **options) as client:
                first = fl.FlightDescriptor.for_command(opening_bytes(self.hello, opening))
                writer, reader = client.do_exchange(first)
                thread = threading.Thread(target=connection.send, args=(writer,), daemon=True, name="transom-site-up")
                thread.start()
                sending = thread
                theirs = Hello.from_json(json.loads(connection.read(reader)))
                self.hello.check(theirs)
                if theirs.site != peer:
                    raise SiteError(f"{theirs.site!r} answers where {peer!r} should be.", "Look at the addresses.")
                connection.put(theirs)
                connection.receive(reader)
        except (SiteError, ValueError) as error:
            connection.put(error)
        except StopIteration:
            connection.put(None)
        except (pa.ArrowException, OSError, RuntimeError) as error:  # the last: no thread can start
            connection.put(SiteError(plain(error)))
        finally:
            connection.stop()
            if sending is not None:
                sending.join(TIMEOUT)
            connection.served = True
