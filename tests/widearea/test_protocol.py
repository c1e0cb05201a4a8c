"""Senders, relays, receivers and links one by one; together they are tried in test_parcels_simulated.py."""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import SiteError
from transom.widearea.hellos import Hello
from transom.widearea.links import Frame, LinkIn, LinkOut, Receipt
from transom.widearea.messages import Abandon, Opened, Opening, Unreadable, from_bytes, to_bytes
from transom.widearea.parcels import Ack, Parcel, Part, PartitionProgress, Place, Reason, Refusal, Standing
from transom.widearea.plans import LeftOut, Plan, Route
from transom.widearea.receivers import Receiver, Store
from transom.widearea.relays import Answer, Expected, Forward, Relay
from transom.widearea.routes import Ends, Routes
from transom.widearea.senders import AGAIN, SHORTEST, Sender
from transom.widearea.trees import Tree

S = 1_000_000


def part(site: str, after: int, upto: int, step: int = 1, epoch: int = 1, acked: int = 0, since: int = 0) -> Part:
    return Part(site, f"ck-{site}", epoch, after, upto, step, since, acked)


def parcel(*parts: Part, tick: int = 1) -> Parcel:
    body = ",".join(f"{each.site}{cut}" for each in parts for cut in range(each.after + 1, each.upto + 1))
    return Parcel("f", tick, tuple(sorted(parts, key=lambda each: each.site)), body.encode())


def standing(site: str, upto: int, epoch: int = 1, step: int = 1) -> Standing:
    return Standing("f", site, f"ck-{site}", Place(upto, epoch, step))


# ---- receivers


class Inbox:
    """Stores at once."""

    def __init__(self, *standings: Standing, **options: int) -> None:
        self.receiver, self.stored = Receiver("f", standings, **options), []

    def __call__(self, sent: Parcel, now: int = 0) -> list:
        return self.do(self.receiver.received(sent, "via", now))

    def do(self, actions) -> list:
        told = []
        for action in actions:
            if isinstance(action, Store):
                self.stored.append(action.parcel.body.decode())
                told += self.do(self.receiver.stored(action))
            else:
                message = action.message
                told.append(message.reason if isinstance(message, Refusal) else message.standing.place.upto)
        return told


def test_ranges_are_taken_in_order_and_acked_again() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 0, 2))) == [2]
    assert inbox(parcel(part("a", 0, 2))) == [2]
    assert inbox(parcel(part("a", 2, 3))) == [3]
    assert inbox(parcel(part("a", 0, 2, epoch=2, acked=0))) == [3]
    assert inbox.stored == ["a1,a2", "a3"]


def test_what_is_ahead_is_held_until_the_rest_has_come() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 2, 3))) == []
    assert inbox(parcel(part("a", 3, 4))) == []
    assert inbox(parcel(part("a", 3, 4))) == []
    assert inbox(parcel(part("a", 0, 2))) == [2, 3, 4]
    assert inbox.stored == ["a1,a2", "a3", "a4"]
    assert inbox.receiver.held == 0


def test_what_is_ahead_is_refused_beyond_a_bound_and_after_a_while() -> None:
    inbox = Inbox(held_bytes=400, patience=S)
    assert inbox(parcel(part("a", 2, 3)), 0) == []
    assert inbox(parcel(part("a", 3, 4)), 0) == [Reason.AHEAD]
    assert inbox.do(inbox.receiver.expired(S - 1)) == []
    assert inbox.do(inbox.receiver.expired(S)) == [Reason.AHEAD]
    assert inbox.receiver.held == 0


def test_a_merged_parcel_is_taken_as_a_whole_or_not_at_all() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 0, 1), part("b", 0, 2))) == [1, 2]
    assert inbox(parcel(part("a", 1, 2))) == [2]
    merged = parcel(part("a", 1, 2), part("b", 2, 3))
    (action,) = inbox.receiver.received(merged, "via", 0)
    assert action.message.reason is Reason.OVERLAP
    assert set(action.message.standings) == {standing("a", 2), standing("b", 2)}
    assert inbox(parcel(part("b", 2, 3))) == [3]
    assert inbox(merged) == [2, 3]
    assert inbox.stored == ["a1,b1,b2", "a2", "b3"]


def test_of_a_merged_parcel_that_is_ahead_in_one_part_nothing_is_taken() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 0, 1), part("b", 1, 2))) == []
    assert inbox(parcel(part("b", 0, 1))) == [1, 1, 2]
    assert inbox.stored == ["b1", "a1,b2"]


def test_progress_alone_is_taken_in_order_and_stops_no_rows() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 0, 1, step=1))) == [1]
    assert inbox(parcel(part("a", 1, 1, step=3))) == [1]
    assert inbox(parcel(part("a", 1, 1, step=2))) == [1]  # older: known
    assert inbox.receiver.standings == (standing("a", 1, step=3),)
    assert inbox(parcel(part("a", 1, 1, step=2), part("b", 0, 1))) == [1, 1]
    assert inbox.stored == ["a1", "", "b1"]
    assert inbox(parcel(part("a", 2, 2, step=5))) == []  # of rows that have not come


def test_rows_that_come_again_from_a_new_run_bring_its_progress() -> None:
    inbox = Inbox()
    inbox(parcel(part("a", 0, 1)))
    again = replace(part("a", 0, 1, epoch=2), partitions=(PartitionProgress(5, 7),))
    (store,) = inbox.receiver.received(parcel(again), "via", 0)
    assert store.parcel.body == b""
    assert store.parcel.part == replace(again, after=1)


def test_nothing_is_acked_before_it_is_durable() -> None:
    receiver = Receiver("f")
    (store,) = receiver.received(parcel(part("a", 0, 1)), "via", 0)
    assert receiver.received(parcel(part("a", 0, 1)), "other", 0) == []
    assert receiver.standings == ()
    assert [tell.message.standing for tell in receiver.stored(store)] == [standing("a", 1)]


@pytest.mark.parametrize(
    "wrong",
    [part("a", 0, 1), part("a", 1, 2, epoch=2, acked=5), replace(part("a", 1, 2, epoch=2), incarnation="another")],
    ids=["an older run", "lost", "another checkpoint"],
)
def test_no_refusal_says_more_than_is_durable(wrong: Part) -> None:
    """A source forgets what a refusal says is there."""
    receiver = Receiver("f")
    (store,) = receiver.received(parcel(part("a", 0, 1, epoch=2)), "via", 0)
    (tell,) = receiver.received(parcel(wrong), "via", 0)
    assert isinstance(tell.message, Refusal)
    assert tell.message.standings == ()
    receiver.stored(store)
    (tell,) = receiver.received(parcel(wrong), "via", 0)
    assert [each.place.upto for each in tell.message.standings] == [1]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (replace(part("a", 5, 6), incarnation="another"), Reason.INCARNATION),
        (part("a", 5, 6, epoch=1), Reason.EPOCH),
        (part("a", 8, 9, epoch=2, acked=7), Reason.LOST),
        (part("b", 3, 4, acked=3), Reason.LOST),
    ],
)
def test_what_would_leave_a_gap_or_come_twice_is_refused(sent: Part, reason: Reason) -> None:
    inbox = Inbox(standing("a", 5, epoch=2))
    (action,) = inbox.receiver.received(parcel(sent), "via", 0)
    assert action.message.reason is reason
    assert reason.remedy
    assert not reason.passes
    inbox.receiver.accept_loss(sent.site)
    assert inbox(parcel(replace(sent, after=sent.acked, acked=sent.acked))) == [sent.upto]


def test_a_flow_that_is_new_at_a_site_begins_later() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 9, 10, since=7, acked=7))) == []
    assert inbox(parcel(part("a", 7, 9, since=7, acked=7))) == [9, 10]


# ---- senders


def sender(**options) -> Sender:
    return Sender("f", "a", "ck-a", 1, **options)


def fixed(each: Sender) -> Parcel:
    order = each.fix()
    assert order is not None
    made = order.parcel(b"x" if order.upto > order.after else b"")
    each.fixed(made)
    return made


def test_what_was_never_sent_merges_with_later_cuts() -> None:
    each = sender()
    assert each.fix() is None
    for cut in range(1, 6):
        each.committed(cut)
        each.departs(cut)
    made = fixed(each)
    assert (made.part.after, made.part.upto, made.tick) == (0, 5, 5)
    assert each.fix() is None
    each.committed(6)
    assert each.due is None  # its interval has not ended
    each.departs(6)
    assert (fixed(each).part.after, each.acked) == (5, 0)


def test_a_parcel_stays_until_the_destination_acks_it_and_takes_another_way() -> None:
    each = sender()
    each.prediction = S
    each.committed(1)
    each.departs(1)
    made = fixed(each)
    assert [tries for _, tries in each.waiting(0)] == [0]
    each.sent(made, "relay", 0)
    assert each.waiting(3 * S - 1) == []
    ((again, tries),) = each.waiting(3 * S)
    assert tries == 1
    each.sent(again, "home", 3 * S)
    assert each.waiting(9 * S - 1) == []  # it waits twice as long
    assert each.stands(Standing("f", "a", "another", Place(9, 9, 9))) == ()
    assert len(each.stands(standing("a", 1))) == 1
    assert (each.unacked, each.acked) == ((), 1)


def test_only_the_oldest_are_sent_again() -> None:
    each = sender()
    for cut in range(1, 11):
        each.committed(cut)
        each.departs(cut)
        each.sent(fixed(each), "home", 0)
    assert [p.part.upto for p, _ in each.waiting(100 * S)] == list(range(1, AGAIN + 1))
    each.reopened("home", forgot=True)
    assert len(each.waiting(0)) == 10


def test_later_progress_makes_earlier_progress_needless() -> None:
    each = sender()
    for tick in (1, 2):
        each.progressed()
        each.departs(tick)
        made = fixed(each)
    assert each.unacked == (made,)
    assert made.part.empty


def test_a_restart_sends_the_same_ranges_and_ticks_with_its_own_epoch() -> None:
    each = Sender("f", "a", "ck-a", 7, committed=9)
    each.restored(5, [parcel(part("a", 2, 3), tick=4), parcel(part("a", 3, 5), tick=6)])
    parts = [(p.part.after, p.part.upto, p.part.epoch, p.part.step, p.tick) for p in each.unacked]
    assert parts == [(2, 3, 7, 1, 4), (3, 5, 7, 2, 6)]
    assert each.acked == 2
    each.departs(10)
    made = fixed(each)
    assert (made.part.after, made.part.upto, made.part.acked) == (5, 9, 2)


def test_who_hears_of_cuts_that_have_not_left_rests() -> None:
    """A destination takes nothing again; so an old copy of a checkpoint would lose what it makes with such numbers."""
    each = Sender("f", "a", "ck-a", 2, committed=3)
    each.restored(2, [parcel(part("a", 0, 2))])
    each.departs(1)
    assert each.stands(standing("a", 3)) == ()
    assert each.refusal is not None
    assert each.refusal.reason is Reason.BEHIND
    assert each.fix() is None
    assert each.waiting(100 * S) == []
    each.reopened("home", forgot=True)
    assert each.refusal is not None


def test_a_refusal_that_needs_somebody_stops_the_flow_and_others_pass() -> None:
    each = sender()
    each.committed(1)
    each.departs(1)
    made = fixed(each)
    each.sent(made, "home", 0)
    each.refused(Refusal.of(made, Reason.AHEAD), S)
    assert each.waiting(S) == []
    assert len(each.waiting(S + SHORTEST)) == 1
    each.refused(Refusal.of(parcel(made.part, part("b", 0, 1)), Reason.EPOCH), S)  # of b's part
    assert each.refusal is None
    each.refused(Refusal.of(parcel(part("a", 0, 1, step=9)), Reason.LOST), S)  # of another run's
    assert each.refusal is None
    each.refused(Refusal.of(made, Reason.FLOW), S)
    assert each.refusal is not None
    assert each.waiting(100 * S) == []
    each.reopened("home", forgot=False)
    assert each.refusal is None


# ---- relays


def joined(_flow: str, bodies) -> bytes:
    return b",".join(bodies)


ALL = Expected(frozenset("abc"), 2 * S, 10 * S)


def test_a_relay_merges_what_it_waits_for() -> None:
    relay = Relay(joined)
    assert relay.received(parcel(part("b", 0, 1)), "b", ALL, 0) == []
    assert relay.received(parcel(part("b", 0, 1)), "b", ALL, 0) == []
    assert relay.received(parcel(part("a", 0, 1)), "a", ALL, 0) == []
    (forward,) = relay.received(parcel(part("c", 0, 1)), "c", ALL, 0)
    assert [each.site for each in forward.parcel.parts] == ["a", "b", "c"]
    assert forward.parcel.body == b"a1,b1,c1"


@pytest.mark.parametrize(("slack", "wait"), [(10 * S, S), (S // 4, S // 4), (0, 0)])
def test_a_relay_waits_half_an_interval_while_slack_lasts(slack: int, wait: int) -> None:
    relay = Relay(joined)
    assert relay.received(parcel(part("a", 0, 1)), "a", replace(ALL, slack=slack), 5) == []
    assert relay.wakes == 5 + wait
    assert relay.expired(4 + wait) == []
    assert relay.expired(5 + wait) == [Forward(parcel(part("a", 0, 1)))]


def test_a_relay_passes_on_at_once_what_it_is_not_to_merge() -> None:
    relay = Relay(joined)
    for expected in (None, Expected(frozenset("bc"), S, S), Expected(frozenset("a"), S, S)):
        assert relay.received(parcel(part("a", 0, 1)), "a", expected, 0) == [Forward(parcel(part("a", 0, 1)))]
    merged = parcel(part("a", 0, 1), part("b", 0, 1))
    assert relay.received(merged, "c", ALL, 0) == [Forward(merged)]


def test_a_relay_sends_apart_what_the_destination_does_not_have() -> None:
    relay = Relay(joined)
    sent = [parcel(part(site, 0, 2)) for site in "abc"]
    for each in sent:
        done = relay.received(each, each.part.site, ALL, 0)
    refusal = Refusal.of(done[0].parcel, Reason.OVERLAP, (standing("a", 2),))
    assert relay.refused(refusal) == [
        Answer("a", Ack(standing("a", 2))),
        Forward(sent[1]),
        Forward(sent[2]),
    ]
    assert relay.acked(Ack(standing("b", 2), 5), 7) == [Answer("b", Ack(standing("b", 2), 12))]
    assert relay.received(sent[1], "b", ALL, 0) == [Answer("b", Ack(standing("b", 2)))]
    relay.acked(Ack(standing("c", 2)))
    assert relay.nbytes == 0


def test_a_refusal_of_a_single_parcel_goes_back_to_its_site() -> None:
    relay = Relay(joined)
    relay.received(parcel(part("a", 0, 1)), "neighbour", None, 0)
    refusal = Refusal.of(parcel(part("a", 0, 1)), Reason.LOST)
    assert relay.refused(refusal) == [Answer("neighbour", refusal)]
    assert relay.nbytes == 0


def test_a_relay_without_room_forgets_and_passes_on() -> None:
    relay = Relay(joined, most_bytes=700)
    for cut in range(10):
        sent = parcel(part("a", cut, cut + 1))
        assert relay.received(sent, "a", None, 0) == [Forward(sent)]
        assert relay.nbytes <= 700
    large = replace(parcel(part("b", 0, 1)), body=b"x" * 1000)
    assert relay.received(large, "b", ALL, 0) == [Forward(large)]


def test_partials_that_cannot_be_merged_go_apart() -> None:
    def no(_flow, _bodies):
        raise SiteError("They have other columns.")

    relay = Relay(no)
    relay.received(parcel(part("a", 0, 1)), "a", Expected(frozenset("ab"), S, S), 0)
    found = relay.received(parcel(part("b", 0, 1)), "b", Expected(frozenset("ab"), S, S), 0)
    assert [action.parcel for action in found] == [parcel(part("a", 0, 1)), parcel(part("b", 0, 1))]


# ---- links


def carried(out: LinkOut, into: LinkIn, now: int) -> list[bytes]:
    """Let everything that may go now go."""
    got = []
    for frame in out.frames(now):
        receipt, data = into.frame(frame)
        out.receipt(receipt, now)
        got += [] if data is None else [data]
    return got


def test_what_is_due_first_goes_first_and_little_is_under_way() -> None:
    out, into = LinkOut(rate=100_000.0), LinkIn()
    out.queue(b"l" * 200_000, due=9 * S)
    first = out.frames(0)
    assert sum(len(frame.payload) for frame in first) <= 25_000
    assert {len(frame.payload) for frame in first} == {5_000}
    assert out.frames(0) == []
    out.queue(b"s" * 100, due=S)
    for frame in first:
        out.receipt(into.frame(frame)[0], 0)
    assert carried(out, into, 0) == [b"s" * 100]
    got: list[bytes] = []
    for _ in range(30):
        got += carried(out, into, 0)
    assert got == [b"l" * 200_000]
    assert out.queued == 0


@given(
    st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 5)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6),
)
def test_after_a_broken_connection_it_goes_on_at_the_last_byte(parcels, breaks) -> None:
    """Of what was sent some comes, of the receipts some too; then there is a new connection."""
    out, into = LinkOut(rate=50_000.0), LinkIn()
    wanted, got, sent = [], [], 0
    for number, (size, due) in enumerate(parcels):
        wanted.append(bytes([number]) * size)
        out.queue(wanted[-1], due)
    for come, heard in [*breaks, *[(1000, 1000)] * 100]:
        frames = out.frames(0)
        sent += sum(len(frame.payload) for frame in frames[:come])
        receipts = []
        for frame in frames[:come]:
            receipt, data = into.frame(frame)
            receipts.append(receipt)
            got += [] if data is None else [data]
        for receipt in receipts[:heard]:
            out.receipt(receipt, 0)
        if come < 1000:
            out.opened(into.received, 0)
    assert sorted(got) == sorted(wanted)
    assert sent == sum(map(len, wanted))  # nothing came twice
    assert out.queued == 0


def test_the_rate_of_a_link_is_measured_while_it_is_busy() -> None:
    """At 40,000 bytes a second, begun with a wrong idea of it; pauses do not count."""
    out, into, now = LinkOut(rate=1_000.0), LinkIn(), 0
    for _ in range(3):
        out.queue(b"x" * 100_000, 0)
        while out.queued:
            for frame in out.frames(now):
                now += len(frame.payload) * S // 40_000
                out.receipt(into.frame(frame)[0], now)
        now += 60 * S
    assert 0.9 * 40_000 <= out.rate <= 1.1 * 40_000
    assert 0.9 * 40_000 <= out.pace <= 1.1 * 40_000
    assert out.frame == pytest.approx(2_000, rel=0.1) or out.frame == 2_048


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (Frame(1, 0, 0, 0, b""), "declares 0"),
        (Frame(1, 0, 1001, zlib.crc32(b"x"), b"x"), "declares 1001"),
        (Frame(1, 0, 10, 1, b"x"), "checksum"),
        (Frame(1, 1, 10, zlib.crc32(b"x"), b"x"), "at byte 1"),
        (Frame(1, 0, 10, 0, b""), "at byte"),
        (Frame(1, 0, 1, zlib.crc32(b"xx"), b"xx"), "behind its end"),
    ],
)
def test_frames_that_make_no_sense_are_refused(frame: Frame, words: str) -> None:
    into = LinkIn(most_parcel=1000)
    with pytest.raises(SiteError, match=words):
        into.frame(frame)
    assert into.nbytes == 0


def test_unfinished_parcels_are_bounded() -> None:
    into = LinkIn(most_open=2, most_bytes=30)
    for number in (1, 2):
        into.frame(Frame(number, 0, 100, zlib.crc32(b"x" * 10), b"x" * 10))
    with pytest.raises(SiteError, match="More than 2"):
        into.frame(Frame(3, 0, 100, zlib.crc32(b"x"), b"x"))
    with pytest.raises(SiteError, match="more than 30"):
        into.frame(Frame(1, 10, 100, zlib.crc32(b"x" * 11), b"x" * 11))
    into.keep_only([2])
    assert into.received == {2: 10}
    into.abandon(2)
    assert into.received == {}


def test_a_link_that_is_not_busy_tells_nothing_of_its_rate() -> None:
    """Two receipts of a small parcel tell how far the other end is, not what the link carries."""
    out, into = LinkOut(rate=1e6), LinkIn()
    for now in range(0, 20 * S, S):
        out.queue(b"x" * 3_000, 0)
        for place, frame in enumerate(out.frames(now), 1):
            out.receipt(into.frame(frame)[0], now + place * 150_000)
    assert out.rate == out.pace == 1e6


def test_a_receipt_for_what_was_not_sent_is_refused() -> None:
    out = LinkOut(rate=1e6)
    number = out.queue(b"x" * 10, 0)
    with pytest.raises(SiteError):
        out.receipt(Receipt(number, 5), 0)
    out.frames(0)
    assert out.receipt(Receipt(number, 10), 0)
    assert not out.receipt(Receipt(number, 10), 0)


# ---- messages

STANDINGS = st.builds(
    Standing, st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.builds(Place, *[st.integers(0)] * 3)
)
MESSAGES = st.one_of(
    st.builds(Frame, *[st.integers(0, 2**32 - 1)] * 4, st.binary(max_size=20)),
    st.builds(Receipt, *[st.integers(0, 2**64 - 1)] * 2),
    st.builds(Abandon, st.integers(0, 2**64 - 1)),
    st.builds(Unreadable, st.integers(0, 2**64 - 1)),
    st.builds(Ack, STANDINGS, st.integers(), st.none() | st.integers()),
    st.builds(
        Refusal,
        st.text(max_size=5),
        st.integers(0),
        st.lists(st.tuples(st.text(max_size=3), st.builds(Place, *[st.integers(0)] * 3)), max_size=2).map(tuple),
        st.sampled_from(Reason),
        st.lists(STANDINGS, max_size=2).map(tuple),
        st.text(max_size=5),
    ),
    st.builds(Opening, st.text(max_size=5), st.lists(st.integers(), max_size=3).map(tuple)),
    st.builds(
        Opened,
        st.text(max_size=5),
        st.dictionaries(st.integers(), st.integers(), max_size=3),
        st.lists(STANDINGS, max_size=2).map(tuple),
    ),
)


@given(MESSAGES)
def test_messages_are_read_as_they_were_written(message) -> None:
    assert from_bytes(to_bytes(message)) == message


@given(MESSAGES, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3), st.integers(0, 200))
def test_garbage_is_an_error_of_ours(message, changes, end) -> None:
    data = bytearray(to_bytes(message))
    for at, value in changes:
        data[at % len(data)] = value
    with suppress(SiteError):
        from_bytes(bytes(data[:end]))


@given(st.binary(max_size=60) | st.just(parcel(part("a", 0, 1)).to_bytes()), st.integers(0, 200), st.integers(1, 255))
def test_a_parcel_that_was_changed_is_refused(data: bytes, at: int, by: int) -> None:
    changed = bytearray(data)
    if changed:
        changed[at % len(changed)] ^= by
    with pytest.raises(SiteError):
        Parcel.from_bytes(bytes(changed))


def test_parcels_are_read_as_they_were_written() -> None:
    whole = replace(
        part("a", 1, 2, since=1, acked=1), partitions=(PartitionProgress(5, None), PartitionProgress(None, 7)),
        failed={"q": "no"}, departs=9, injected=4, ended=True,
    )  # fmt: skip
    for sent in (parcel(whole, part("b", 0, 0)), parcel(part("b", 0, 3))):
        assert Parcel.from_bytes(sent.to_bytes()) == sent


# ---- hellos and routes


def test_what_differs_between_two_sites() -> None:
    here = Hello("a", spark="4.3", flows={"f": "one", "g": "two", "h": "three"})
    there = replace(here, site="b", transom="0.9", flows={"f": "one", "g": "else", "i": "four"})
    here.check(there)
    assert set(here.differs(there)) == {"g", "h", "i"}
    assert Hello.from_json(there.to_json()) == there
    with pytest.raises(SiteError, match=r"a has spark 4.3, b has 4.4") as error:
        here.check(replace(there, spark="4.4"))
    assert "same minor version" in error.value.remedy
    for value in (None, [], {"site": "a"}, {**here.to_json(), "flows": 3}):
        with pytest.raises(SiteError, match="no opening"):
            Hello.from_json(value)


def test_a_site_follows_the_newest_plan_that_holds() -> None:
    routes = Routes("c", S, {"f": Ends(("a", "b", "c"), "d")})
    assert (routes.parent("f", 5), routes.departs("f", 5), routes.expected("f", 5)) == ("d", True, None)
    tree = Tree("d", (("a", "c"), ("b", "c"), ("c", "d")))
    plan = Plan(3, 100, "latency", 1.0, 1.0, (Route("f", tree, 4, 1, 2.5),), ())
    assert routes.adopt(plan)
    assert not routes.adopt(replace(plan, version=2))
    assert routes.expected("f", 99) is None
    assert routes.expected("f", 101) == Expected(frozenset("abc"), 4 * S, 4 * S)
    assert [tick for tick in range(100, 110) if routes.departs("f", tick)] == [101, 105, 109]
    assert routes.next_departure("f", 101) == 105
    assert Routes("d", S, routes.flows).parent("f", 3) == "d"
    assert routes.adopt(Plan(4, 200, "latency", 1.0, 1.0, (), (), (LeftOut("f", ("c", "d"), 1.0),)))
    assert (routes.parent("f", 240), routes.next_departure("f", 240)) == ("d", 300)
    assert routes.adopt(Plan(5, 300, "latency", 1.0, 1.0, (), ()))  # which does not know it
    assert (routes.parent("f", 340), routes.next_departure("f", 340)) == ("d", 341)
    assert routes.expected("f", 150) is not None


@pytest.mark.parametrize("megabits", [0.2, 2.0, 10.0])
@pytest.mark.parametrize("stated", [0.1, 1.0, 10.0])
def test_a_link_that_is_always_full_is_used(megabits: float, stated: float) -> None:
    """Over 20 s, with 80 ms from frame to receipt, whatever was stated of it; and little waits on the way."""
    rate = megabits * 125_000
    out, into = LinkOut(rate=stated * rate), LinkIn()
    now, free, got, most = 0, 0, 0, 0.0
    receipts: list[tuple[int, Receipt]] = []
    while now < 20 * S:
        while out.waiting < 2:
            out.queue(b"x" * 40_000, 0)
        for frame in out.frames(now):
            free = max(free, now) + round((len(frame.payload) + 60) * S / rate)
            got += len(frame.payload)
            receipts.append((free + 80_000, into.frame(frame)[0]))
        most = max(most, (free - now) / S) if now > 5 * S else most
        now, receipt = receipts.pop(0)
        out.receipt(receipt, now)
    assert got >= 0.9 * rate * 20
    assert most <= 0.5
    assert out.rate == pytest.approx(rate, rel=0.15)
