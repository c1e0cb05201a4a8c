"""What a source gathers, when it leaves, and for how long it is kept."""

from __future__ import annotations

from tests.widearea.made import S, parcel, part, standing

from transom.widearea.parcels import Parcel, Place, Reason, Refusal, Standing
from transom.widearea.senders import AGAIN, LONGEST, SHORTEST, Sender


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
    each.stands(Standing("f", "a", "ck-a", Place(3, 7, 1)))
    assert each.due is None
    each.stands(Standing("f", "a", "ck-a", Place(5, 7, 2)))
    made = fixed(each)
    assert (made.part.after, made.part.upto, made.part.acked) == (5, 9, 5)


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
    assert each.waiting(S + LONGEST - 1) == []
    each.reopened("home", forgot=False)
    assert each.refusal is None


def test_what_there_is_no_room_for_is_sent_ever_more_seldom() -> None:
    each = sender()
    each.committed(1)
    each.departs(1)
    made, now, waits = fixed(each), 0, []
    for _ in range(5):
        each.sent(made, "home", now)
        each.refused(Refusal.of(made, Reason.FULL), now)
        waits.append(next(wait for wait in range(S, 100 * S, S) if each.waiting(now + wait)))
        now += waits[-1]
    assert waits == [S, 2 * S, 4 * S, 4 * S, 4 * S]


def test_whoever_was_lost_often_is_not_waited_for_longer_each_time() -> None:
    """The wait doubles while nobody knows why acks are missing; a new connection tells."""
    each = sender()
    each.committed(1)
    each.departs(1)
    made = fixed(each)
    for loss in range(6):
        each.reopened("relay", forgot=loss > 0)
        assert [tries for _, tries in each.waiting(0)] == [loss]
        each.sent(made, "relay", 0)
        assert not each.waiting(SHORTEST - 1)
        assert each.waiting(SHORTEST)
    for late in range(1, 4):
        each.sent(made, "relay", 0)
        assert not each.waiting((SHORTEST << late) - 1, {"relay"})
        assert each.waiting(SHORTEST << late, {"relay"})
    assert each.waiting(SHORTEST, {"home"})  # given to who is gone
    assert not each.waiting(SHORTEST - 1, {"home"})


def test_a_flow_that_rests_asks_now_and_then_whether_somebody_has_helped() -> None:
    each = sender()
    made = []
    for cut in (1, 2):
        each.committed(cut)
        each.departs(cut)
        made.append(fixed(each))
        each.sent(made[-1], "relay", 0)
    each.refused(Refusal.of(made[1], Reason.FLOW), S)
    assert each.waiting(S + LONGEST - 1) == []
    assert [(parcel.part.place, tries) for parcel, tries in each.waiting(S + LONGEST)] == [(made[0].part.place, 1)]
    assert each.refusal is not None
    each.stands(Standing("f", "a", made[0].part.incarnation, made[0].part.place))
    assert each.refusal is None


def test_the_end_of_a_run_is_told_once_and_again_if_there_is_more() -> None:
    """A source that was at its end may go on, while acks are waited for; and a destination may begin anew."""
    each = sender(committed=3)
    each.restored(3)
    each.ends(7)
    assert fixed(each).part.ended
    each.ends(8)
    assert (each.fix(), each.told_end) == (None, True)
    each.goes_on()
    each.committed(4)
    assert not each.told_end
    each.departs(9)
    assert not fixed(each).part.ended
    for again in (lambda: each.committed(5), each.forgotten):
        again()
        each.ends(10)
        assert fixed(each).part.ended
        assert each.told_end
    assert [(parcel.part.upto, parcel.part.ended) for parcel in each.unacked] == [(4, False), (5, True), (5, True)]


def again(*fixed_before: Parcel, left: int = 0, committed: int = 0) -> Sender:
    """Return the sender of a later run."""
    made = Sender("f", "a", "ck-a", 2, committed)
    made.restored(left, fixed_before)
    made.departs(9)
    return made


def test_a_later_run_asks_where_the_destination_stands_before_it_fixes_cuts() -> None:
    """Its checkpoint may be an old copy; a relay says what it has heard of the run before."""
    each = again(left=7, committed=9)
    asked = fixed(each)
    assert (asked.part.after, asked.part.upto, asked.part.ended) == (7, 7, False)
    each.departs(10)
    assert each.due is None
    each.stands(standing("a", 7))
    assert each.due is None
    each.stands(standing("a", 7, epoch=2, step=1))
    assert fixed(each).part.upto == 9


def test_an_old_copy_hears_that_before_its_cuts_are_taken_for_others() -> None:
    each = again(left=7, committed=9)
    fixed(each)
    each.stands(standing("a", 9))
    assert each.refusal is not None
    assert each.refusal.reason is Reason.BEHIND
    each.begin_anew("another")
    assert fixed(each).part.upto == 9


def test_what_an_earlier_run_has_fixed_asks_as_well() -> None:
    each = again(parcel(part("a", 5, 7)), left=7, committed=7)
    ((sent, _),) = each.waiting(0)
    each.ends(9)
    each.committed(8)
    assert each.due is None
    each.stands(standing("a", 7, epoch=2, step=sent.part.step))
    assert (fixed(each).part.upto, each.told_end) == (8, True)


def test_a_run_with_the_number_of_one_that_was_tells_its_news_behind_what_that_told() -> None:
    each = again(left=7, committed=7)
    fixed(each)
    each.stands(standing("a", 7, epoch=2, step=5))  # by the run of which this checkpoint is no copy
    assert each.unacked == ()
    each.committed(8)
    each.departs(10)
    assert fixed(each).part.place == Place(7, 2, 6)
    each.stands(standing("a", 7, epoch=2, step=6))
    assert fixed(each).part.place == Place(8, 2, 7)
