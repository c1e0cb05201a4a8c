"""Sites of one process: their carriers talk by queues. For tests, and to try a job before there are machines.

Each run of a site has a desk of its own. What was said to one that has ended is lost with it, whoever has come in its
place: parcels go on over a new connection, on which both ends say first what they know.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from transom.model.time import Micros
from transom.sites.mail import Flows, Standings
from transom.widearea.carriers import Carrier
from transom.widearea.messages import Down, Opened, Opening, Up
from transom.widearea.topology import Site


@dataclass(frozen=True)
class _Gone:
    """A neighbour has ended, and with it the connections with it."""


@dataclass(frozen=True)
class _Back:
    """Comes back on the connection to a neighbour."""

    message: Down


_Message: TypeAlias = "Opening | Opened | Up | _Back | _Gone"


class Hall:
    """Where sites of one process meet; may be used from any thread."""

    def __init__(self) -> None:
        self._desks: dict[Site, Desk] = {}
        self._lock = threading.Lock()

    def desk(self, site: Site) -> Desk:
        """Return the way from a site to the others, for one run."""
        return Desk(self, site)

    def enter(self, desk: Desk) -> list[Desk]:
        """Let a site in, in place of one of that name; return who is there."""
        with self._lock:
            self._desks[desk.site] = desk
            return [each for each in self._desks.values() if each is not desk]

    def leave(self, desk: Desk) -> None:
        """Let a site go, and tell the others."""
        with self._lock:
            if self._desks.get(desk.site) is not desk:
                return
            del self._desks[desk.site]
            others = list(self._desks.values())
        for each in others:
            each.put(desk, _Gone())

    def has(self, desk: Desk) -> bool:
        """Tell whether a run of a site is there."""
        with self._lock:
            return self._desks.get(desk.site) is desk


@dataclass(eq=False)
class Desk:
    """A run of a site in the hall, see `transom.sites.mail.Mail`."""

    hall: Hall
    site: Site
    _came: deque[tuple[Desk, _Message]] = field(default_factory=deque)
    _peers: dict[Site, Desk] = field(default_factory=dict)
    """The run of each other site that it talks with."""
    _opening: set[Site] = field(default_factory=set)
    """Those that were asked to open a connection."""
    _carrier: Carrier = field(init=False)
    _standings: Standings = field(init=False)
    _wake: Callable[[], None] = field(init=False)

    def begin(self, carrier: Carrier, standings: Standings, wake: Callable[[], None], flows: Flows) -> None:
        """Enter the hall, and connect with those who are there, who run the same job."""
        self._carrier, self._standings, self._wake = carrier, standings, wake
        for desk in self.hall.enter(self):
            self._peers[desk.site] = desk
            self._connect(desk.site)

    def put(self, sender: Desk, message: _Message) -> None:
        """Take what another one says; may be called from any thread."""
        self._came.append((sender, message))
        self._wake()

    def look(self, now: Micros) -> None:
        """Take what was said, and say what is to be said."""
        while self._came:
            sender, message = self._came.popleft()
            known = self._peers.get(sender.site)
            if isinstance(message, Opening) and known is not sender and self.hall.has(sender):
                self._lose(sender.site)
                self._peers[sender.site] = known = sender
            if known is sender:  # else it has ended
                self._take(sender.site, message, now)
        for peer in self._carrier.open:
            for frame in self._carrier.frames(peer, now):
                self._say(peer, frame)
        for peer, answer in self._carrier.answers():
            self._say(peer, _Back(answer))

    def _take(self, peer: Site, message: _Message, now: Micros) -> None:
        match message:
            case _Gone():
                self._lose(peer)
            case Opening():
                self._say(peer, self._carrier.accept(peer, message, self._standings(), now=now))
                self._connect(peer)
            case Opened():
                self._carrier.opened(peer, message, now)
            case _Back(said):
                self._carrier.heard(peer, said, now)
            case _:
                self._carrier.came(peer, message, now)

    def _connect(self, peer: Site) -> None:
        """Open the connection on which parcels go to a neighbour, unless there is one."""
        if peer not in self._opening and peer not in self._carrier.open:
            self._opening.add(peer)
            self._say(peer, self._carrier.opening(peer))

    def _say(self, peer: Site, message: _Message) -> None:
        """Say something to a neighbour, if the run of it is there with which the connection is."""
        desk = self._peers.get(peer)
        if desk is not None and self.hall.has(desk):
            desk.put(self, message)
        else:
            self._opening.discard(peer)
            self._carrier.closed(peer)

    def _lose(self, peer: Site) -> None:
        """Take note that a run of a neighbour has ended, with the connections with it."""
        self._opening.discard(peer)
        self._carrier.closed(peer)
        self._carrier.belief.left(peer)

    def end(self) -> None:
        """Leave the hall."""
        self.hall.leave(self)
