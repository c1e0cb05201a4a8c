"""Sites without Spark that send each other parcels over Flight, and callers of any kind."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.flight as fl
from benchmarks.certificates import identity

from transom.model.time import SystemClock
from transom.sites.codec import LinkPacking
from transom.sites.flight import FlightMail
from transom.sites.secured import Identity
from transom.widearea.bodies import to_body
from transom.widearea.carriers import Carrier
from transom.widearea.hellos import Hello
from transom.widearea.messages import Opening, to_bytes
from transom.widearea.parcels import Ack, Refusal, RowCounts
from transom.widearea.receivers import Receiver, Store
from transom.widearea.routes import Ends, Routes
from transom.widearea.senders import Sender

FLOWS = {"f": Ends(("paris", "rome"), "home"), "g": Ends(("paris",), "home")}
HELLO = Hello("home", transom="0.2", spark="4.3", zone="UTC", flows={"f": {"keys": "a"}, "g": {"keys": "b"}})
clock = SystemClock()


class Place:
    """A site without Spark: its carrier, its mail, a sender or receivers."""

    def __init__(self, name: str, secured: bool = True, hello: Hello = HELLO, boot: str = "1") -> None:
        self.name, self.woken = name, threading.Event()
        self.carrier = Carrier(
            name,
            boot,
            Routes(name, 1_000_000, FLOWS),
            lambda flow, bodies: bodies[0],
            dict.fromkeys(("home", "paris", "rome"), 1000000.0),
            lambda _: LinkPacking(),
        )
        self.mail = FlightMail(replace(hello, site=name), "127.0.0.1:0", {}, identity(name) if secured else None)
        self.receivers = {flow: Receiver(flow) for flow, ends in FLOWS.items() if ends.destination == name}
        self.senders = {
            flow: Sender(flow, name, f"ck-{name}", 1) for flow, ends in FLOWS.items() if name in ends.sources
        }
        self.got: list = []
        self.refusals: list[Refusal] = []
        self.mail.begin(self.carrier, self.standings, self.woken.set, hello.flows)

    def standings(self):
        return [standing for receiver in self.receivers.values() for standing in receiver.standings]

    def knows(self, *others: Place) -> None:
        for other in others:
            self.mail.addresses[other.name] = f"127.0.0.1:{other.mail.port}"

    def turn(self) -> None:
        now = clock.monotonic()
        self.mail.look(now)
        for parcel, via in self.carrier.arrivals:
            for action in self.receivers[parcel.flow].received(parcel, via, now):
                self.do(action)
        self.carrier.arrivals.clear()
        for message in self.carrier.news:
            if isinstance(message, Ack):
                self.senders[message.standing.flow].stands(message.standing)
            else:
                self.refusals.append(message)
                self.senders[message.flow].refused(message, now)
        self.carrier.news.clear()
        for order in self.carrier.dispatch(self.senders.values(), now):
            rows = pa.table(
                {"_pane": [0] * 100, "key": [f"key {n}" for n in range(100)], "_s0_count": [order.upto] * 100}
            )
            self.senders[order.flow].fixed(order.parcel(to_body(rows), counts=RowCounts(order.upto - order.after)))
        self.mail.look(now)

    def do(self, action) -> None:
        if isinstance(action, Store):
            self.got.append(action.parcel)
            for ack in self.receivers[action.parcel.flow].stored(action):
                self.do(ack)
        else:
            self.carrier.answer(action.peer, action.message)


def until(done: Callable[[], bool], *all_places: Place) -> None:
    """Let sites go on until something is so; only what hangs takes long."""
    end = clock.monotonic() + 30_000_000
    while not done():
        assert clock.monotonic() < end, [place.mail.refusals for place in all_places]
        for place in all_places:
            place.turn()
        all_places[0].woken.wait(0.01)
        all_places[0].woken.clear()


def connected(*all_places: Place) -> None:
    for place in all_places:
        place.knows(*(other for other in all_places if other is not place))
    until(lambda: all(len(place.carrier.open) == len(all_places) - 1 for place in all_places), *all_places)


def send(place: Place, cut: int, flow: str = "f") -> None:
    place.senders[flow].committed(cut)
    place.senders[flow].departs(cut)


def call(home: Place, who: Identity | None, command: bytes, *messages: bytes) -> str:
    """Say something to a site as somebody; return what it says, to the end."""
    options = {"tls_root_certs": identity("home").authority, "override_hostname": "home"}
    if who is not None:
        options |= {"cert_chain": who.chain, "private_key": who.key}
    said = ""
    with fl.FlightClient(f"grpc+tls://127.0.0.1:{home.mail.port}", **options) as client:
        try:
            descriptor = fl.FlightDescriptor.for_command(command)
            writer, reader = client.do_exchange(descriptor, fl.FlightCallOptions(timeout=300))
            for message in messages:
                writer.write_metadata(pa.py_buffer(message))
            while not said.endswith("."):
                said += reader.read_chunk().app_metadata.to_pybytes().decode("latin-1")
            writer.done_writing()
        except (pa.ArrowException, OSError, StopIteration) as error:
            said += str(error)
    return said


def opening(name: str, **changes) -> bytes:
    hello = replace(HELLO, site=name, **changes)
    return json.dumps([hello.to_json(), to_bytes(Opening("x")).decode("latin-1")]).encode()
