"""What a cut says of itself."""

from __future__ import annotations

from transom.engine.spark.cutstats import CutStats
from transom.engine.spark.rowfiles import KeptRows
from transom.engine.streams.cuts import CutOutcome, LoggedCut

CUT = LoggedCut(7, 3, 5, 10, 100, 90, None, 1, mark=123)


def test_a_cut_that_reads_nothing_says_nothing_of_the_rows_that_the_whole_one_reads() -> None:
    closing = CUT.only_closing()
    assert closing.empty
    assert closing.mark is None


def test_cuts_of_the_first_format_have_no_mark() -> None:
    value = CUT.to_json()
    del value["mark"]
    assert LoggedCut.from_json(value).mark is None


def test_kept_rows_of_the_first_format_name_no_files() -> None:
    record = CutOutcome(CUT, stats=CutStats(), kept={"q": KeptRows(4, {})}).record("s", None)
    assert CutOutcome.recorded(CUT, record).kept == {"q": KeptRows(4, {})}
    assert CutOutcome.recorded(CUT, {**record, "kept": {"q": 4}}).kept == {"q": KeptRows(4, None)}
