"""Records of the log: their text stays as it is for ever, and is read as what was written."""

from __future__ import annotations

import json

import pytest

from transom.engine.changes.records import SetChange
from transom.engine.loop.logrecords import Begun, Committed, Delivered, Failed, Planned, record_of
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.windows.components import DEFAULT

CUT = LoggedCut(3, 10, 20, 10, 100, 200, None, 300)
DELIVERED = '{"type": "delivered", "items": [["q", 3, "csv:/x"], ["r", 4, "memory"]]}'


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (Delivered((("q", 3, "csv:/x"), ("r", 4, "memory"))), DELIVERED),
        (Failed("q", "why"), '{"type": "failed", "query": "q", "error": "why"}'),
        (Planned("s", DEFAULT), f'{{"type": "plan", "stream": "s", "arrangement": {json.dumps(DEFAULT.to_json())}}}'),
        (Begun("s", CUT), f'{{"type": "cut", "stream": "s", "cut": {json.dumps(CUT.to_json())}}}'),
        (SetChange("s", removed=("q",)), None),
        (SetChange("s", added={"q": 7}, definitions={"q": {}}, sinks={"q": ("memory", "memory#2")}, after=4), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_record_is_read_as_it_was_written(record, text):
    written = json.dumps(record.to_json())
    assert text is None or written == text
    assert record_of(json.loads(written)) == record


def test_a_commit_is_read_as_the_outcome_of_its_cut():
    outcome = CutOutcome(CUT, failures={"q": "why"}, late={"r": 2})
    record = record_of(json.loads(json.dumps(outcome.record("s", None))))
    assert isinstance(record, Committed)
    assert (record.stream, record.number, record.tables) == ("s", 3, None)
    assert record.outcome(CUT) == outcome


def test_records_of_another_kind_are_passed_over():
    assert record_of({"type": "note"}) is None


def test_a_delivery_of_a_time_when_queries_had_one_sink():
    assert record_of({"type": "delivered", "items": [["q", 3]]}) == Delivered((("q", 3, ""),))
