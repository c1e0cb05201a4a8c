"""Connections of sites: what waits, what is read and how many there are is bounded, and none waits for the other."""

from __future__ import annotations

import threading
import zlib
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.flight as fl
from benchmarks.certificates import identity
from mailing import Place, call, opening, until

from transom.sites import connections, flight
from transom.widearea.links import Frame, Receipt
from transom.widearea.messages import Opening, to_bytes
from transom.widearea.parcels import Ack, Standing
from transom.widearea.parcels import Place as Where


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
    time = SimpleNamespace(now=0)
    monkeypatch.setattr(flight, "_CLOCK", SimpleNamespace(monotonic=lambda: time.now))
    ends = threading.Event()
    called = []
    monkeypatch.setattr(home.mail, "_call", lambda connection, opening: (called.append(connection), ends.wait()))
    home.mail.addresses["paris"] = "127.0.0.1:1"
    for time.now in range(0, 100_000_000, 10_000_000):
        home.mail.look(time.now)
        if "paris" in home.mail._out:
            home.mail._drop(home.mail._out, home.mail._out["paris"])
    assert "has not ended 2 connections" in home.mail.refusals[-1]
    until(lambda: len(called) >= 2, home)  # each is noted on a thread of its own
    assert len(called) == 2
    called[0].served = True
    time.now = 200_000_000
    until(lambda: len(called) == 3, home)
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


def test_receipts_and_acks_wake_the_loop_only_while_more_waits_to_be_sent() -> None:
    woken: list[int] = []
    connection = connections.Connection("paris", lambda: woken.append(1))
    ack = Ack(Standing("f", "home", "ck", Where(1, 1, 1)))
    connection.hurry(False)
    connection.put(Receipt(1, 10))
    connection.put(ack)
    assert not woken, "all was sent: they change nothing"
    connection.hurry(True)
    assert len(woken) == 1, "what came before that was said is looked at"
    connection.put(Receipt(1, 20))
    assert len(woken) == 2
    connection.take()
    connection.hurry(False)
    connection.put(None)
    assert len(woken) == 3, "the end of the connection is news"
    connection.take()
    for at in range(connections.WAITING):
        connection.put(Receipt(2, at))
    assert len(woken) > 3, "nothing more is read before they are taken"
