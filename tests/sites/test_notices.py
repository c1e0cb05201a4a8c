"""What people are told of neighbours, and how often."""

from __future__ import annotations

from transom.sites.notices import LONGEST, MOST, WHILE, Notices


def test_the_same_is_told_once_until_all_was_well() -> None:
    notices = Notices()
    assert [notices.news("paris", "wrong", now) for now in range(3)] == ["wrong", "", ""]
    assert notices.news("rome", "wrong", 3) == "wrong"
    notices.passed("paris")
    assert notices.news("paris", "wrong", 4) == "wrong"


def test_ever_new_things_are_told_so_often_in_a_while() -> None:
    notices = Notices()
    told = [notices.news("paris", f"wrong {number}", number) for number in range(10 * MOST)]
    assert told[: MOST - 1] == [f"wrong {number}" for number in range(MOST - 1)]
    assert "no more of them" in told[MOST - 1]
    assert set(told[MOST:]) == {""}
    assert notices.news("rome", "wrong", 1) == "wrong"
    assert notices.news("paris", "wrong again", 2 * WHILE) == "wrong again"


def test_what_is_long_is_cut() -> None:
    assert len(Notices().news("paris", "x" * 10_000, 0)) == LONGEST
