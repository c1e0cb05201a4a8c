"""Sites that talk over loopback, with TLS, and those who should not be let in."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from benchmarks.certificates import identity
from mailing import HELLO, call, connected, opening, send, until

from transom.errors import DefinitionError, SiteError
from transom.sites import connections, flight
from transom.sites.flight import FlightMail
from transom.widearea.bodies import from_body
from transom.widearea.links import Frame
from transom.widearea.messages import Opening, to_bytes
from transom.widearea.parcels import Reason
from transom.widearea.senders import Sender


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


def test_a_site_that_ends_before_it_answers_is_connected_to_anew(places) -> None:
    """Its threads have taken the connection, and say that they are there for as long as their process is."""
    home, paris = places("home"), places("paris")
    paris.knows(home)
    home.knows(paris)
    until(lambda: not home.mail._arrived.empty(), paris)
    given_up = paris.mail._out["home"]
    home.mail.end()
    again = places("home", boot="2")
    again.knows(paris)
    paris.knows(again)
    until(lambda: "home" in paris.carrier.open, again, paris)
    assert paris.mail._out["home"] is not given_up
    with pytest.raises(SiteError, match="no connections any more"):
        home.mail.admit("paris", opening("paris"))


def test_who_does_not_answer_is_connected_to_anew(places, monkeypatch) -> None:
    monkeypatch.setattr(flight, "UNANSWERED", 0)
    home, paris = places("home"), places("paris")
    paris.knows(home)
    home.knows(paris)
    until(lambda: any("has not answered" in each for each in paris.mail.refusals), paris)
    monkeypatch.undo()
    until(lambda: "home" in paris.carrier.open, home, paris)


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


def test_it_connects_again_by_the_time_of_links_whatever_clock_the_application_has(places, monkeypatch) -> None:
    """A clock that stands still until something comes would let nothing come."""
    paris, now, called = places("paris"), [0], threading.Semaphore(0)

    def call(mail, connection, opening):
        connection.put(SiteError("It is not there."))
        connection.served = True
        called.release()

    monkeypatch.setattr(flight.FlightMail, "_call", call)
    monkeypatch.setattr(flight, "_CLOCK", SimpleNamespace(monotonic=lambda: now[0]))
    paris.mail.addresses["home"] = "127.0.0.1:1"
    for wait in (0, flight.RETRY, 2 * flight.RETRY):
        now[0] += wait
        paris.mail.look(0)
        assert called.acquire(timeout=60)
        paris.mail.look(0)
        assert paris.mail._out == {}
