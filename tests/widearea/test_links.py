"""Both ends of a link: what goes first, what is under way, and what a broken connection costs."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.widearea.made import S

from transom.errors import SiteError
from transom.widearea.incoming import LinkIn
from transom.widearea.links import LEAST_FRAME, MOST_FRAME, MOST_PROBE, MOST_WINDOW, Frame, LinkOut, Receipt


def carried(out: LinkOut, into: LinkIn, now: int) -> list[bytes]:
    """Let everything that may go now go."""
    got = []
    for frame in out.frames(now):
        receipt, data = into.frame(frame, now)
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
        out.receipt(into.frame(frame, 0)[0], 0)
    assert carried(out, into, 0) == [b"s" * 100]
    got: list[bytes] = []
    for _ in range(30):
        got += carried(out, into, 0)
    assert got == [b"l" * 200_000]
    assert out.queued == 0


def test_little_that_is_left_of_a_parcel_goes_with_its_last_frame() -> None:
    """What is around a frame of some bytes would take much of a thin link."""
    out, into = LinkOut(rate=25_000.0), LinkIn()
    out.queue(b"x" * (3 * LEAST_FRAME + 200), 0)
    sizes: list[int] = []
    while out.queued:
        sent = out.frames(0)
        sizes += [len(frame.payload) for frame in sent]
        for frame in sent:
            out.receipt(into.frame(frame, 0)[0], 0)
    assert sizes == [LEAST_FRAME, LEAST_FRAME, LEAST_FRAME + 200]


@given(st.integers(1, 10 * MOST_FRAME), st.floats(1, 1e9))
def test_no_frame_is_larger_than_frames_may_be(size: int, rate: float) -> None:
    out, into = LinkOut(rate=rate), LinkIn()
    out.queue(b"x" * size, 0)
    while out.queued:
        for frame in out.frames(0):
            assert 0 < len(frame.payload) <= MOST_FRAME
            out.receipt(into.frame(frame, 0)[0], 0)


def test_what_a_link_carried_lately_is_known_for_ten_seconds() -> None:
    out, into = LinkOut(rate=1e6), LinkIn()
    for second in (0, 4, 8):
        out.queue(b"x" * 10_000, due=S)
        carried(out, into, second * S)
    assert [out.used(at * S) for at in (8, 9, 10, 14, 18)] == [3_000.0, 3_000.0, 2_000.0, 1_000.0, 0.0]


def busy(out: LinkOut, into: LinkIn, rate: float, now: int, until: int) -> tuple[int, list[bytes], int]:
    """Let a link of a rate carry what there is; return bytes, parcels, and when it was idle."""
    total, got, way = 0, [], []
    while now < until:
        way += out.frames(now)
        if not way:
            break
        frame = way.pop(0)
        now += int(len(frame.payload) * 1e6 / rate)
        total += len(frame.payload)
        receipt, data = into.frame(frame, now)
        out.receipt(receipt, now)
        got += [] if data is None else [data]
    return total, got, now


@pytest.mark.parametrize("rate", [25_000.0, 250_000.0, 1_250_000.0])
def test_an_unused_link_is_measured_with_a_hundredth_of_its_rate(rate: float) -> None:
    out, into = LinkOut(rate=2 * rate), LinkIn()
    total, now, hour = 0, 0, 3_600 * S
    while now < hour:
        out.probe(now)
        some, _, now = busy(out, into, rate, now, hour)
        total += some
        now += S
    assert 0.9 * rate <= out.rate <= 1.1 * rate
    assert total <= 0.0105 * hour / S * 2 * rate
    assert out.queued == out.waiting == 0


def test_parcels_go_before_a_probe_and_a_link_in_use_has_none() -> None:
    out, into = LinkOut(rate=100_000.0), LinkIn()
    assert not out.probe(0)
    assert out.probe(100 * S)
    assert not out.probe(100 * S)
    first = out.frames(100 * S)
    assert out.waiting == 0
    out.queue(b"s" * 100, due=S)
    assert out.waiting == 1
    for frame in first:
        out.receipt(into.frame(frame, 100 * S)[0], 100 * S)
    assert b"s" * 100 in carried(out, into, 100 * S)
    assert not out.probe(300 * S)  # the other one is under way
    assert LinkOut().probe(0) is LinkOut().probe(900 * S) is False


def test_a_probe_ends_with_its_connection() -> None:
    out, into = LinkOut(rate=100_000.0), LinkIn()
    out.probe(0)
    out.probe(100 * S)
    into.frame(out.frames(100 * S)[0], 100 * S)
    assert out.opened(into.received, 101 * S) == []
    assert out.frames(101 * S) == []


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
            receipt, data = into.frame(frame, 0)
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
                out.receipt(into.frame(frame, now)[0], now)
        now += 60 * S
    assert 0.9 * 40_000 <= out.rate <= 1.1 * 40_000
    assert 0.9 * 40_000 <= out.pace <= 1.1 * 40_000
    assert out.frame == LEAST_FRAME


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
        into.frame(frame, 0)
    assert into.nbytes == 0


def test_unfinished_parcels_are_bounded() -> None:
    into = LinkIn(most_open=2, most_bytes=30)
    for number in (1, 2):
        into.frame(Frame(number, 0, 100, zlib.crc32(b"x" * 10), b"x" * 10), 0)
    with pytest.raises(SiteError, match="More than 2"):
        into.frame(Frame(3, 0, 100, zlib.crc32(b"x"), b"x"), 0)
    with pytest.raises(SiteError, match="more than 30"):
        into.frame(Frame(1, 10, 100, zlib.crc32(b"x" * 11), b"x" * 11), 0)
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
            out.receipt(into.frame(frame, now + place * 150_000)[0], now + place * 150_000)
    assert out.rate == out.pace == 1e6


@pytest.mark.parametrize("size", [20_000, 60_000, 150_000])
def test_loops_that_are_busy_do_not_make_a_link_slow(size: int) -> None:
    """Receipts are looked at a second after they came; the link takes what it takes."""
    rate, free = 250_000, 0
    out, into = LinkOut(rate=rate), LinkIn()
    for now in range(0, 60 * S, S):
        if now % (2 * S) == 0:
            out.queue(b"x" * size, 0)
        came = []
        for frame in out.frames(now):
            free = max(free, now) + len(frame.payload) * S // rate
            came.append(into.frame(frame, free)[0])
        for receipt in came:
            out.receipt(receipt, now + S - 1)
    assert out.rate == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize("ahead", [-(10**12), 0, 10**12])
@pytest.mark.parametrize(
    "job", [lambda look: S, lambda look: (7 * look) % 13 * S // 10], ids=["alike", "of any length"]
)
def test_a_link_that_waits_for_busy_loops_is_not_slow(job, ahead: int) -> None:
    """Receipts of a window are looked at one by one, so that something seems to be under way while nothing is."""
    rate, free, now = 250_000, 0, 0
    out, into = LinkOut(rate=2 * rate), LinkIn()
    way: list[tuple[int, Frame]] = []

    def send(now: int) -> None:
        nonlocal free
        for frame in out.frames(now):
            free = max(free, now) + len(frame.payload) * S // rate
            way.append((free, frame))

    for look in range(200):
        if look % 4 == 0:
            out.queue(b"x" * 400_000, 0)
        send(now)
        now += job(look)
        for at, frame in [each for each in way if each[0] <= now]:
            receipt = replace(into.frame(frame, at + ahead)[0], said=now + ahead)
            out.receipt(receipt, now + 1_000)
            way.remove((at, frame))
            send(now + 1_000)
        now += 2_000
    assert out.rate == out.pace == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize("before", [5, 20, 100])
def test_a_link_that_falls_is_known_to_be_thin_with_the_next_parcel(before: int) -> None:
    """Of what was measured before, ten times as much may be remembered."""
    out, into, now = LinkOut(rate=250_000.0), LinkIn(), 0
    for rate, parcels in ((250_000.0, before), (80_000.0, 1)):
        for _ in range(parcels):
            now += 2 * S
            out.queue(b"x" * 75_000, 0)
            busy(out, into, rate, now, now + 2 * S)
    assert out.sure == pytest.approx(80_000, rel=0.05)


def test_a_link_that_is_slow_for_a_moment_is_not_thin() -> None:
    out, into, now = LinkOut(rate=250_000.0), LinkIn(), 0
    for parcel in range(100):
        now += 2 * S
        out.queue(b"x" * 75_000, 0)
        _, _, later = busy(out, into, 125_000.0 if parcel % 20 == 19 else 250_000.0, now, now + S // 5)
        busy(out, into, 250_000.0, later, now + 2 * S)
        assert out.sure == pytest.approx(250_000, rel=0.05)


WHENEVER = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.tuples(WHENEVER, WHENEVER) | st.just((0, 0)), min_size=5, max_size=20))
def test_no_time_that_the_other_end_tells_does_harm(times) -> None:
    out, into, now = LinkOut(rate=1e5), LinkIn(), 0
    out.probe(now)
    for at, said in times:
        now += 100 * S
        if not out.queued:
            out.queue(b"x" * 30_000, 0)
        for frame in out.frames(now):
            out.receipt(replace(into.frame(frame, 0)[0], at=at, said=said), now)
        assert out.rate >= 1.0
    while out.queued:
        carried(out, into, now)
    out.probe(now + 1000 * S)
    assert sum(len(frame.payload) for frame in out.frames(now)) <= MOST_PROBE


def test_a_probe_of_a_very_fast_link_takes_little_memory() -> None:
    rate = 1e9
    out, into, now = LinkOut(rate=rate), LinkIn(), 0
    out.probe(now)
    for _ in range(8):
        now += 100 * S
        assert out.probe(now)
        total, _, now = busy(out, into, rate / 2, now, now + S)
        assert total <= MOST_PROBE
    assert out.rate == pytest.approx(rate / 2, rel=0.05)


def test_what_could_not_be_read_leaves_others_measured() -> None:
    """Of a parcel that is unreadable there is no last receipt."""
    out, into = LinkOut(rate=100_000.0), LinkIn()
    for now in range(0, 20 * S, S):
        first, second = out.queue(b"x" * 12_000, 0), out.queue(b"y" * 12_000, 1)
        for frame in out.frames(now):
            now += len(frame.payload) * S // 50_000
            receipt, data = into.frame(frame, now)
            if data is None or receipt.number == second:
                out.receipt(receipt, now)
        out.abandon(first)
    assert out.rate == pytest.approx(50_000, rel=0.05)


def test_a_receipt_for_what_was_not_sent_is_refused() -> None:
    out = LinkOut(rate=1e6)
    number = out.queue(b"x" * 10, 0)
    with pytest.raises(SiteError):
        out.receipt(Receipt(number, 5), 0)
    out.frames(0)
    assert out.receipt(Receipt(number, 10), 0)
    assert not out.receipt(Receipt(number, 10), 0)


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
            receipts.append((free + 80_000, into.frame(frame, free)[0]))
        most = max(most, (free - now) / S) if now > 5 * S else most
        now, receipt = receipts.pop(0)
        out.receipt(receipt, now)
    assert got >= 0.9 * rate * 20
    assert most <= 0.5
    assert out.rate == pytest.approx(rate, rel=0.15)


def test_what_another_end_says_makes_nothing_grow() -> None:
    """It says that it cannot read what it was given, or tells of the same bytes again, or of a link without bounds."""
    out = LinkOut(rate=1e6)
    for turn in range(1_000):
        number = out.queue(b"x" * 100_000, S)
        assert out.frames(turn)
        assert out.abandon(number)
    assert (out.queued, out.under_way, len(out._on_way)) == (0, 0, 0)
    number = out.queue(b"x" * 100_000, S)
    frame, *_ = out.frames(0)
    for now in range(10 * S, 20 * S, 10_000):
        out.receipt(Receipt(number, len(frame.payload), now, now), now)
    assert len(out._carried) <= 101
    fast = LinkOut(rate=1e15)
    fast.queue(b"x" * (2 * MOST_WINDOW), S)
    assert sum(len(each.payload) for each in fast.frames(0)) <= MOST_WINDOW


def test_a_parcel_that_is_given_up_tells_nothing_of_the_rate_of_those_behind_it() -> None:
    out, into = LinkOut(rate=100_000.0), LinkIn()
    out.queue(b"x" * 400_000, S)
    for turn in range(8):
        for frame in out.frames(turn * 2 * S):
            out.receipt(into.frame(frame, turn * 2 * S + 50_000)[0], turn * 2 * S + 50_000)
    before = list(out._rates)
    gone = out.queue(b"y" * 5_000, 0)
    now = 100 * S
    frames = out.frames(now)
    out.abandon(gone)
    for frame in frames:
        if frame.number != gone:
            now += 50_000
            out.receipt(into.frame(frame, now)[0], now)
    assert min(out._rates, default=0.0) >= min(before, default=0.0)
