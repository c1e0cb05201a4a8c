"""The source of a flow passes the suite of sources, and tells of each partition what its site says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from transom.engine.state.absence import Heard
from transom.errors import SourceError
from transom.model.time import ManualClock
from transom.sites.arriving import REST, ArrivingSource
from transom.testing.sources import SourceCase, SourceSuite
from transom.widearea.bodies import to_body
from transom.widearea.parcels import Parcel, Part, PartitionProgress, RowCounts

ROWS = 3


def part(site, after, upto, progress=((None, None),), rows=ROWS, **more):
    partitions = tuple(PartitionProgress(*each) for each in progress)
    return Part(site, f"ck-{site}", 1, after, upto, upto + 1, partitions=partitions, counts=RowCounts(rows), **more)


class TestArriving(SourceSuite):
    @pytest.fixture(params=[["north"], ["north", "south"]], ids=len)
    def case(self, request):
        made, sites = [], request.param

        def make():
            made.append(ArrivingSource("fares", sites))
            return made[-1]

        def grow(clock):
            clock.advance(5_000_000)
            source = made[-1]
            for site in sites * 2:
                cut, first = source.latest(), source.latest() * ROWS
                table = pa.table({"_pane": [0] * ROWS, "id": range(first, first + ROWS), "_s0_count": [1] * ROWS})
                source.add(
                    Parcel("fares", 1, (part(site, cut, cut + 1, arrived=clock.now(), ended=True),), to_body(table))
                )

        return SourceCase(make, grow, unit=ROWS)


def opened(tmp_path, sites=("north", "south")):
    source = ArrivingSource("fares", sites)
    source.open(None, tmp_path, ManualClock(7))
    return source


def test_idle_is_what_a_site_says_in_this_run(tmp_path):
    source = opened(tmp_path)
    assert (source.partitions, source.idle(0), source.silent) == (
        ["north/0", "south/0"],
        [None, None],
        ("north", "south"),
    )
    source.add(Parcel("fares", 1, (part("south", 0, 2, [(5, 100), (6, None)]),)))
    assert source.idle(0) == [None, None, None]  # rows wait
    assert source.idle(1) == [None, 100, None]
    source.add(Parcel("fares", 2, (part("south", 2, 2, [(5, 200), (6, 300)], rows=0),)))
    assert source.idle(1) == [None, 200, 300]  # news without rows hold nothing back
    assert source.silent == ("north",)
    assert source.newest() == [None, 5, 6]
    assert opened(tmp_path).idle(2) == [None, None, None]


def test_injected_watermarks_are_the_least_of_all_sites_and_come_in_order(tmp_path):
    source = opened(tmp_path)
    assert source.watermark(0) is None
    source.add(Parcel("fares", 1, (part("south", 0, 1, injected=50),)))
    assert source.watermark(1) is None
    source.add(Parcel("fares", 1, (part("north", 0, 1, injected=40),)))
    source.add(Parcel("fares", 2, (part("north", 1, 2, injected=90),)))
    assert [source.watermark(end) for end in range(4)] == [None, None, 40, 50]


def test_stats_have_a_place_for_each_partition_of_each_site(tmp_path):
    source = opened(tmp_path)
    both = (part("north", 0, 1, [(3, None)]), part("south", 0, 4, [(None, None), (9, 1)], rows=2, failed={"q": "no"}))
    source.add(Parcel("fares", 1, both))
    (brought,) = source.partials(0, 1)
    assert (brought.stats.rows, brought.stats.newest) == (5, (3, None, 9))
    assert brought.cuts == (("north", "ck-north", 0, 1), ("south", "ck-south", 0, 4))
    assert (brought.table, brought.failed) == (None, {"q": "at south: no"})


def test_silence_is_time_in_which_somebody_listened(tmp_path):
    second, source = 1_000_000, opened(tmp_path)
    for moment in (1, 2, 100, 101):  # between 2 and 100 nobody did
        source.listened(7 + moment * second)
    assert source.heard(0) == Heard(["north", "south"], {}, 4 * second)
    source.came(["north"])
    source.listened(7 + 102 * second)
    assert source.heard(0).silence == {"north": second}
    source.add(Parcel("fares", 1, (part("south", 0, 1),)))
    assert source.heard(0).silence == {"north": second, "south": 0}  # rows wait, so they would be late
    assert source.heard(1).silence == {"north": second}


def test_a_run_ends_without_a_site_that_is_left_out(tmp_path):
    source = opened(tmp_path)
    source.came(["north"])
    source.add(Parcel("fares", 1, (part("north", 0, 0, rows=0, ended=True),)))
    assert not source.exhausted(1)
    source.leave_out({"south"})
    assert source.exhausted(1)
    source.listened(7 + 1_000_000)
    assert source.heard(1).silence == {"north": 1_000_000}
    source.once = True  # north has said all
    assert source.heard(1).silence == {"north": 0}


def test_a_site_that_is_gone_is_refused(tmp_path):
    opened(tmp_path).add(Parcel("fares", 1, (part("south", 0, 1),)))
    with pytest.raises(SourceError, match="'south'"):
        opened(tmp_path, ["north"])


def test_what_completes_nothing_rests_for_more(tmp_path):
    clock, source = ManualClock(7), ArrivingSource("fares", ("north", "south"))
    source.open(None, tmp_path, clock)
    source.add(Parcel("fares", 1, (part("north", 0, 1, [(50, None)]),)))
    assert source.rests(0)
    clock.advance(REST - 1)
    source.add(Parcel("fares", 2, (part("north", 1, 2, [(60, None)]),)))
    assert source.rests(0)
    clock.advance(1)
    assert not source.rests(0)  # the first has waited long enough
    assert source.rests(1)
    source.add(Parcel("fares", 1, (part("south", 0, 1, [(50, None), (55, REST)]),)))
    assert not source.rests(1)  # both have come to 50
    source.add(Parcel("fares", 2, (part("south", 1, 2, [(50, None), (70, None)]),)))
    assert source.rests(3)
    source.add(Parcel("fares", 2, (part("south", 2, 3, [(50, 3 * REST), (70, None)]),)))
    assert not source.rests(3)  # no window waits for an idle partition


@pytest.mark.parametrize(
    "news", [{"ended": True}, {"anew": True}, {"injected": 5}, {"failed": {"mean": "no such key"}}]
)
def test_news_of_another_kind_do_not_rest(tmp_path, news):
    source = opened(tmp_path)
    source.add(Parcel("fares", 1, (part("north", 0, 1, **news),)))
    assert not source.rests(0)


def test_nothing_rests_for_a_site_that_is_left_out(tmp_path):
    source = opened(tmp_path)
    source.add(Parcel("fares", 1, (part("north", 0, 1, [(50, None)]),)))
    assert source.rests(0)
    source.leave_out(["south"])
    assert not source.rests(0)
