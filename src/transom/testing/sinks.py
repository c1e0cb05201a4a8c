"""The suite that every sink passes: each window once, whatever is written again, killed, or claimed by another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from transom.errors import SinkError
from transom.sinks.base import REVISION, Sink, WindowResults
from transom.sinks.owner import Claim, Owner

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEYS = ("window_start", "window_end", "zone")
OWNER = Owner("checkpoint-1", "fares", "/checkpoints/1")


@dataclass
class SinkCase:
    """A sink that the suite tests.

    Args:
        make: Returns a sink that writes to a place which is empty at first; each call gives one for the same place.
        rows: Returns the pairs (zone, n) that a reader of the place sees, in any order, duplicates included.
        replaces: Whether a revision replaces the row of the same window and keys; else it is one more row.
        claims: Whether it keeps others out of its place.
        recovers: Whether it undoes or refuses results of cuts that the checkpoint does not know.
    """

    make: Callable[[], Sink]
    rows: Callable[[], list[tuple[str | None, int]]]
    replaces: bool = False
    claims: bool = True
    recovers: bool = True


def results(cut: int, rows: dict[str | None, int], window: int = 0, revision: int | None = None) -> WindowResults:
    """Return the results of a cut: the number n for each zone of a window of a minute."""
    start = NOON + timedelta(minutes=window)
    columns: dict[str, Any] = {
        "window_start": pa.array([start] * len(rows), pa.timestamp("us", "UTC")),
        "window_end": pa.array([start + timedelta(minutes=1)] * len(rows), pa.timestamp("us", "UTC")),
        "zone": pa.array(list(rows), pa.string()),
        "n": pa.array(list(rows.values()), pa.int64()),
        "mean": pa.array([float(n) / 2 for n in rows.values()], pa.float64()),
    }
    if revision is not None:
        columns[REVISION] = pa.array([revision] * len(rows), pa.int64())
    return WindowResults(OWNER.query, cut, pa.table(columns), KEYS)


def opened(sink: Sink, next_cut: int, claim: Claim | None = None) -> Sink:
    """Return a sink as a run has it that logs `next_cut` as its first cut."""
    sink.open(OWNER.query)
    sink.claim(claim or Claim(OWNER, is_new=next_cut == 1, epoch=next_cut))
    sink.recover(OWNER.query, next_cut)
    return sink


class SinkSuite:
    """Tests that every sink passes; a subclass, whose name begins with Test, has a fixture `case`.

    The fixture returns a `SinkCase`.
    """

    def test_it_says_in_one_line_what_it_is(self, case: SinkCase) -> None:
        """Also before it is opened; the key that checkpoints know it by does not change."""
        sink = case.make()
        key = getattr(sink, "key", None) or sink.describe()
        assert key == (getattr(case.make(), "key", None) or case.make().describe())
        assert sink.describe()
        assert "\n" not in sink.describe()
        opened(sink, 1).close()
        assert key == (getattr(sink, "key", None) or key)

    def test_what_is_written_is_there_once(self, case: SinkCase) -> None:
        """Each cut's results add to those before; writing the same cut again changes nothing."""
        sink = opened(case.make(), 1)
        sink.write(results(1, {"Soho": 1, None: 2}))
        sink.write(results(3, {"Soho": 3}, window=1))
        sink.write(results(3, {"Soho": 3}, window=1))
        assert sorted(case.rows(), key=str) == [("Soho", 1), ("Soho", 3), (None, 2)]
        sink.close()

    def test_a_restart_writes_again_what_was_not_noted(self, case: SinkCase) -> None:
        """The log does not know that cuts 1 and 2 were delivered; both come again, and then cut 3."""
        first = opened(case.make(), 1)
        first.write(results(1, {"Soho": 1}))
        first.write(results(2, {"Soho": 2}, window=1))
        first.close()
        second = opened(case.make(), 3)
        for cut in (1, 2, 3):
            second.write(results(cut, {"Soho": cut}, window=cut - 1))
        second.close()
        if case.recovers:
            assert sorted(case.rows()) == [("Soho", 1), ("Soho", 2), ("Soho", 3)]

    def test_results_of_unknown_cuts_are_removed_or_refused(self, case: SinkCase) -> None:
        """The log ends before cut 2, whose results must not be seen any more, or not be taken for its own."""
        if not case.recovers:
            pytest.skip("it cannot undo what it did")
        first = opened(case.make(), 1)
        first.write(results(1, {"Soho": 1}))
        first.write(results(2, {"Soho": 2}, window=1))
        first.close()
        second = case.make()
        try:
            opened(second, 2)
        except SinkError:
            assert sorted(case.rows()) == [("Soho", 1), ("Soho", 2)]
        else:
            assert case.rows() == [("Soho", 1)]
        second.close()

    @pytest.mark.parametrize("other", ["query", "checkpoint", "new query"])
    def test_another_one_is_kept_out(self, case: SinkCase, other: str) -> None:
        """Results of one query of one checkpoint are in a place, and nothing is changed by who tries to take it."""
        if not case.claims:
            pytest.skip("it has no place that others could take")
        first = opened(case.make(), 1)
        first.write(results(1, {"Soho": 1}))
        first.close()
        name = "tips" if other == "query" else OWNER.query
        owner = Owner("checkpoint-2" if other == "checkpoint" else OWNER.checkpoint, name, "/checkpoints/2")
        second = case.make()
        second.open(name)
        with pytest.raises(SinkError):
            second.claim(Claim(owner, is_new=other != "query", epoch=9))
        second.close()
        third = opened(case.make(), 2)
        third.write(results(2, {"Soho": 2}, window=1))
        third.close()
        assert sorted(case.rows()) == [("Soho", 1), ("Soho", 2)]

    def test_a_revision_replaces_its_row_or_is_one_more(self, case: SinkCase) -> None:
        """Where rows are replaced, the missing key (None) is equal to itself."""
        sink = opened(case.make(), 1)
        sink.write(results(1, {"Soho": 1, None: 2}, revision=0))
        sink.write(results(2, {None: 5}, revision=1))
        expected = {("Soho", 1), (None, 5)} if case.replaces else {("Soho", 1), (None, 2), (None, 5)}
        assert len(case.rows()) == len(expected)
        assert set(case.rows()) == expected
        sink.close()

    def test_values_that_are_hard_to_write(self, case: SinkCase) -> None:
        """Quotes, line breaks, separators and other alphabets; NaN and the infinities."""
        zones = ['say "x"', "a,b;c\td", "line\nbreak", "back\\slash", "", "Straße 東京 🚕", "NULL", "\\N"]
        sink = opened(case.make(), 1)
        written = results(1, {zone: n for n, zone in enumerate(zones)})
        floats = [float("nan"), float("inf"), -float("inf"), 0.1, -0.0, 1e300, 5e-324, 1.0]
        table = written.table.set_column(4, "mean", pa.array(floats, pa.float64(), from_pandas=False))
        sink.write(replace(written, table=table))
        assert sorted(case.rows(), key=lambda row: row[1]) == [(zone, n) for n, zone in enumerate(zones)]
        sink.close()

    def test_a_table_of_no_rows_and_closing_twice(self, case: SinkCase) -> None:
        """Neither harms."""
        sink = opened(case.make(), 1)
        sink.write(results(1, {}))
        sink.write(results(2, {"Soho": 2}))
        assert case.rows() == [("Soho", 2)]
        sink.close()
        sink.close()
