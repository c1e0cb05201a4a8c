"""Sites that talk over loopback, with TLS, and those who should not be let in."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from benchmarks.certificates import identity

from transom.errors import DefinitionError, SiteError
from transom.model.time import SystemClock
from transom.sites import connections, flight
from transom.sites.codec import LinkPacking
from transom.sites.flight import FlightMail
from transom.sites.secured import Identity
from transom.widearea.bodies import from_body, to_body
from transom.widearea.carriers import Carrier
from transom.widearea.hellos import Hello
from transom.widearea.links import Frame
from transom.widearea.messages import Opening, to_bytes
from transom.widearea.parcels import Ack, Reason, Refusal, RowCounts, Standing
from transom.widearea.parcels import Place as Where
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


@pytest.fixture
def places():
    made: list[Place] = []

    def make(*args, **kwargs) -> Place:
        made.append(Place(*args, **kwargs))
        return made[-1]

    yield make
    for place in reversed(made):
        place.mail.end()


def until(done: Callable[[], bool], *all_places: Place) -> None:
    """Let sites go on until something is so; only what hangs takes long."""
    end = clock.monotonic() + 30_000_000
    while not done():
        assert clock.monotonic() < end, [place.mail.refusals for place in all_places]
        for place in all_places:
            place.turn()
        all_places[0].woken.wait(0.01)
        all_places[0].woken.clear()


def test_both_ends_of_an_idle_connection_say_that_they_are_there(places, monkeypatch) -> None:
    """gRPC ends connections on which one end asks whether the other is there, and hears nothing else for minutes."""
    heard: list[bytes] = []

    class Listening:
        def __init__(self, reader):
            self.reader = reader

        def read_chunk(self):
            chunk = self.reader.read_chunk()
            heard.append(chunk.app_metadata.to_pybytes())
            return chunk

    read = connections.Connection.read
    monkeypatch.setattr(connections.Connection, "read", lambda self, reader: read(self, Listening(reader)))
    monkeypatch.setattr(connections, "ALIVE", 0.01)
    home, paris = places("home"), places("paris")
    connected(home, paris)
    before = dict(paris.mail._out), dict(home.mail._out)
    until(lambda: heard.count(connections._ALIVE) >= 20, home, paris)
    assert (paris.mail._out, home.mail._out) == before
    assert [*home.mail.refusals, *paris.mail.refusals] == []


def connected(*all_places: Place) -> None:
    for place in all_places:
        place.knows(*(other for other in all_places if other is not place))
    until(lambda: all(len(place.carrier.open) == len(all_places) - 1 for place in all_places), *all_places)


def send(place: Place, cut: int, flow: str = "f") -> None:
    place.senders[flow].committed(cut)
    place.senders[flow].departs(cut)


@pytest.mark.parametrize("secured", [True, False])
def test_parcels_arrive_and_are_acked(places, secured) -> None:
    home, paris = places("home", secured), places("paris", secured)
    connected(home, paris)
    for cut in (1, 2, 3):
        send(paris, cut)
        until(lambda: not paris.senders["f"].unacked and paris.senders["f"].due is None, home, paris)
    assert [(p.part.after, p.part.upto) for p in home.got] == [(0, 1), (1, 2), (2, 3)]
    assert from_body(home.got[2].body).column("_s0_count").to_pylist() == [3] * 100
    assert not home.mail.refusals
    assert not paris.mail.refusals


def test_a_site_that_comes_back_goes_on(places) -> None:
    home, paris = places("home"), places("paris")
    connected(home, paris)
    send(paris, 1)
    until(lambda: bool(home.got), home, paris)
    port = home.mail.port
    home.mail.end()
    send(paris, 2)
    until(lambda: "home" not in paris.carrier.open, paris)
    again = places("home", boot="2")
    again.receivers = home.receivers
    again.got = home.got
    assert again.mail.port != port
    again.knows(paris)
    paris.knows(again)
    until(lambda: not paris.senders["f"].unacked and len(home.got) > 1, again, paris)
    assert [(p.part.after, p.part.upto) for p in home.got] == [(0, 1), (1, 2)]


def test_what_agrees_flows_and_the_rest_is_refused_with_the_difference(places) -> None:
    others = {"f": {"keys": "a"}, "g": {"keys": "a, b"}}
    home, paris = places("home"), places("paris", hello=replace(HELLO, flows=others))
    connected(home, paris)
    send(paris, 1)
    send(paris, 1, "g")
    until(lambda: bool(home.got) and bool(paris.refusals), home, paris)
    assert {parcel.flow for parcel in home.got} == {"f"}
    (refusal,) = paris.refusals
    assert (refusal.flow, refusal.reason) == ("g", Reason.FLOW)
    assert refusal.detail == "The flow 'g' differs: keys are b at home, and a, b at paris."


@pytest.mark.parametrize(
    ("field", "value"), [("protocol", 3), ("spark", "4.4"), ("zone", "Europe/Paris"), ("ansi", False)]
)
def test_sites_that_differ_in_what_all_results_depend_on_are_refused(places, field, value) -> None:
    home, paris = places("home"), places("paris", hello=replace(HELLO, **{field: value}))
    home.knows(paris)
    paris.knows(home)
    until(lambda: bool(home.mail.refusals) and bool(paris.mail.refusals), home, paris)
    assert home.carrier.open == paris.carrier.open == ()
    assert f"has {field}" in paris.mail.refusals[0]


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


def test_no_certificate_and_a_foreign_one(places) -> None:
    home = places("home")
    home.mail.addresses["paris"] = "127.0.0.1:1"
    for who in (None, identity("paris", by="somebody else")):
        call(home, who, opening("paris"))
        assert home.mail._arrived.empty()
        assert not home.mail._in


@pytest.mark.parametrize(
    ("who", "command", "words"),
    [
        ("rome", opening("rome"), "no site that 'home' knows"),
        ("rome", opening("paris"), "The certificate is that of 'rome'"),
        ("paris", b"", "no opening"),
        ("paris", b"\x80\x04garbage", "no opening"),
        ("paris", b"[1, 2]", "no opening"),
        ("paris", b"[" * 100_000, "no opening"),
        ("paris", json.dumps([{"site": "paris"}, to_bytes(Opening("x")).decode("latin-1")]).encode(), "no opening"),
        ("paris", json.dumps([HELLO.to_json(), "R"]).encode(), "no message"),
    ],
)
def test_who_is_not_known_or_not_understood_is_refused(places, who, command, words) -> None:
    home = places("home")
    home.mail.addresses["paris"] = "127.0.0.1:1"
    said = call(home, identity(who), command)
    assert words in home.mail.refusals[-1]
    assert words in said.replace("\\u0027", "'")
    assert not home.mail._in


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"?", "begins with"),
        (b"F", "no message"),
        (to_bytes(Opening("x")), "opened twice"),
        (to_bytes(Frame(1, 0, 1 << 40, 0, b"x")), "declares"),
        (to_bytes(Frame(1, 0, 10, 5, b"x")), "checksum"),
        (to_bytes(Frame(1, 5, 10, 0x8CDC1683, b"x")), "at byte"),
        (to_bytes(Frame(1, 0, 1, 0x8CDC1683, b"x")), "ends too early"),
    ],
)
def test_what_makes_no_sense_ends_the_connection_and_nothing_else(places, message, words) -> None:
    home = places("home")
    home.mail.addresses["paris"] = "127.0.0.1:1"
    ended = threading.Thread(target=call, args=(home, identity("paris"), opening("paris"), message))
    ended.start()
    until(lambda: any(words in each for each in home.mail.refusals), home)
    ended.join()
    assert not home.got
    assert not home.carrier.arrivals
    del home.mail.addresses["paris"]
    paris = places("paris")
    connected(home, paris)
    send(paris, 1)
    until(lambda: not paris.senders["f"].unacked and bool(home.got), home, paris)


def test_a_flow_that_the_peer_has_no_part_in_is_refused(places) -> None:
    home, rome = places("home"), places("rome")
    connected(home, rome)
    rome.senders["g"] = Sender("g", "rome", "ck-rome", 1)
    send(rome, 1, "g")
    until(lambda: bool(rome.refusals), home, rome)
    assert rome.refusals[0].reason is Reason.FLOW
    assert "rome has no part in the flow 'g'" in rome.refusals[0].detail
    assert not home.got


def test_without_tls_nothing_leaves_the_machine() -> None:
    with pytest.raises(DefinitionError, match="not on this machine"):
        FlightMail(HELLO, "0.0.0.0:7000", {}, None)
    with pytest.raises(DefinitionError, match="not on this machine"):
        FlightMail(HELLO, "127.0.0.1:0", {"paris": "10.0.0.7:7000"}, None)
    with pytest.raises(DefinitionError, match="no address"):
        FlightMail(HELLO, "127.0.0.1", {}, None)


def test_an_address_that_is_taken(places) -> None:
    home = places("home")
    mail = FlightMail(HELLO, f"127.0.0.1:{home.mail.port}", {}, identity("home"))
    with pytest.raises(SiteError, match="cannot take connections"):
        mail.begin(home.carrier, list, lambda: None, {})


def frames(number: int) -> list[bytes]:
    """Return so many messages, each with a part of one parcel."""
    crc = zlib.crc32(b"x")
    return [to_bytes(Frame(1, at, 1 << 20, crc, b"x")) for at in range(number)]


class Mute:
    """A site that is known, sends what it likes, and reads nothing of what it is told."""

    def __init__(self, home: Place, name: str) -> None:
        who = identity(name)
        options = {"tls_root_certs": who.authority, "cert_chain": who.chain, "private_key": who.key}
        options |= {"override_hostname": "home", "generic_options": [("grpc.http2.lookahead_bytes", 1024)]}
        self.client = fl.FlightClient(f"grpc+tls://127.0.0.1:{home.mail.port}", **options)
        self.writer, self.reader = self.client.do_exchange(fl.FlightDescriptor.for_command(opening(name)))

    def end(self) -> None:
        self.reader.cancel()
        self.client.close()


def test_what_a_site_sends_that_does_not_read_is_not_read_beyond_a_bound(places, monkeypatch) -> None:
    """Each frame asks for a receipt; the loop takes what has come, and no more in one look."""
    monkeypatch.setattr(connections, "MOST_SAID", 100)
    home = places("home")
    home.mail.addresses["paris"] = "127.0.0.1:1"
    blocked = threading.Event()
    monkeypatch.setattr(connections.Connection, "send", lambda self, writer: blocked.wait())
    paris = Mute(home, "paris")
    until(lambda: "paris" in home.mail._in, home)
    there = home.mail._in["paris"]
    sent = threading.Thread(target=lambda: [paris.writer.write_metadata(pa.py_buffer(each)) for each in frames(1_000)])
    sent.start()
    until(lambda: there.crowded and not there._came.qsize(), home)
    most = there._said.qsize()
    assert 100 <= most <= 100 + 2 * connections.WAITING
    ack = Ack(Standing("f", "paris", "ck-paris", Where(1, 1, 1)))
    for _ in range(10):
        home.carrier.answer("paris", ack)
        home.turn()
    assert there._said.qsize() == most
    assert "does not read what it is told" in home.mail.refusals[-1]
    received = home.carrier._neighbours["paris"].into.nbytes
    while there._said.qsize():  # it reads
        there._said.get()
    there._sent.set()
    until(lambda: home.carrier._neighbours["paris"].into.nbytes > received, home)
    there.end()
    blocked.set()
    sent.join()
    paris.end()


def test_one_look_takes_what_has_come_however_fast_more_comes(places) -> None:
    home = places("home")
    there = connections.Connection("paris", lambda: None)
    home.mail._in["paris"] = there
    home.carrier.accept("paris", Opening("x"))
    taken = []

    def came(peer, message, now, at) -> None:
        taken.append(message)
        there.put(message)

    home.carrier.came = came
    for _ in range(5):
        there.put("message")
    home.mail.look(0)
    assert len(taken) == 5
    assert there._came.qsize() == 5


def test_a_site_that_opens_ever_more_connections_is_refused(places, monkeypatch) -> None:
    monkeypatch.setattr(flight, "MOST_CONNECTIONS", 3)
    home = places("home")
    home.mail.addresses |= {"paris": "127.0.0.1:1", "rome": "127.0.0.1:1"}
    mute = [Mute(home, "paris") for _ in range(3)]
    until(lambda: len(home.mail._called.get("paris", ())) == 3, home)
    assert "has 3 connections to 'home'" in call(home, identity("paris"), opening("paris"))
    assert "has 3 connections to 'home'" in home.mail.refusals[-1]
    other = Mute(home, "rome")
    until(lambda: "rome" in home.mail._in, home)
    for each in (*mute, other):
        each.end()
    until(lambda: all(each.served for each in home.mail._called["paris"]), home)
    again = Mute(home, "paris")
    until(lambda: len(home.mail._called["paris"]) == 1, home)
    again.end()


def test_connections_that_a_site_does_not_let_end_are_counted(places, monkeypatch) -> None:
    monkeypatch.setattr(flight, "MOST_CONNECTIONS", 2)
    home = places("home")
    ends = threading.Event()
    called = []
    monkeypatch.setattr(home.mail, "_call", lambda connection, opening: (called.append(connection), ends.wait()))
    home.mail.addresses["paris"] = "127.0.0.1:1"
    for now in range(0, 100_000_000, 10_000_000):
        home.mail.look(now)
        if "paris" in home.mail._out:
            home.mail._drop(home.mail._out, home.mail._out["paris"])
    assert len(called) == 2
    assert "has not ended 2 connections" in home.mail.refusals[-1]
    called[0].served = True
    home.mail.look(200_000_000)
    until(lambda: len(called) == 3)
    ends.set()


def test_a_message_that_is_too_large_ends_the_connection_that_was_opened(places) -> None:
    """gRPC does not take more than is allowed, so that it is not in memory first."""

    class Talking(fl.FlightServerBase):
        def do_exchange(self, context, descriptor, reader, writer):
            writer.write_metadata(pa.py_buffer(bytes(2 << 20)))

    home = places("home", secured=False)
    with Talking("grpc+tcp://127.0.0.1:0") as server:
        home.mail.addresses["paris"] = f"127.0.0.1:{server.port}"
        until(lambda: bool(home.mail.refusals), home)
    assert "no message" not in home.mail.refusals[0]  # it never came so far


def test_who_sends_goes_on_to_read_however_much_waits_to_be_sent(monkeypatch) -> None:
    """Else both ends could wait for each other: what is read is what there is room for."""
    monkeypatch.setattr(connections, "MOST_SAID", 2)
    for answers in (False, True):
        there = connections.Connection("paris", lambda: None, answers)
        for _ in range(3):
            there.say(b"x")
        assert there.crowded
        reading = threading.Thread(target=there.receive, args=(Ended(),))
        reading.start()
        if answers:
            assert there._came.empty()
            there.stop()
        reading.join()
        assert [message for message, _ in there.take()] == ([] if answers else [None])


class Ended:
    """A connection on which nothing comes any more."""

    def read_chunk(self):
        raise StopIteration
