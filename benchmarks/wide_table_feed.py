"""The rows of Table I at several sites, tick by tick, as Parquet files: keys that repeat, or the words of a text."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.ticking import Ticking
from benchmarks.wide_feed import scattered
from benchmarks.wide_problems import KEYS, ROWS
from benchmarks.wide_table import LARGEST, VALUES

NOBODYS = -1
"""The query of the rows that only tell that time has passed."""
Rows = Callable[[int, int, int], dict[str, Any]]
"""Columns but `q` and `at` of a query at a site (by place) in a tick."""


class Keyed:
    """Rows of keys that repeat.

    Args:
        rates: Of queries, by number and place of the site: Mbit/s of Table I.
        tick: Seconds.
    """

    def __init__(self, rates: Mapping[tuple[int, int], float], tick: float) -> None:
        self.counts = {key: round(rate * ROWS * tick) for key, rate in rates.items()}

    def __call__(self, query: int, place: int, tick: int) -> dict[str, Any]:
        """Return the columns."""
        rng = np.random.default_rng([query, place, tick])
        count = self.counts[query, place]
        keys = scattered(rng.integers(0, KEYS, count) + query * KEYS)
        return {"key": keys, **{name: rng.integers(0, LARGEST, count) for name in VALUES}}


class Words:
    """The words of a text, over and over; those that are there once get the number of the pass.

    Args:
        text: The words.
        rates: Of queries, by number and place of the site: bytes per second.
        tick: Seconds.
    """

    def __init__(self, text: Sequence[str], rates: Mapping[tuple[int, int], float], tick: float) -> None:
        self.text, self.rates, self.tick = pa.array(text, pa.string()), rates, tick
        self._ends = np.cumsum([len(word.encode()) + 1.0 for word in text])
        counts = Counter(text)
        self._once = pa.array([counts[word] == 1 for word in text])
        self._at = {key: place * len(text) // max(len(rates), 1) for place, key in enumerate(sorted(rates))}
        """By query and site: the next word, counted over all passes; each begins elsewhere in the text."""

    def __call__(self, query: int, place: int, tick: int) -> dict[str, Any]:
        """Return the words of the next bytes."""
        key, found = (query, place), list[pa.Array]()
        left = self.rates[key] * self.tick
        while left > 0:
            passed, at = divmod(self._at[key], len(self.text))
            before = self._ends[at - 1] if at else 0
            end = min(max(int(np.searchsorted(self._ends, before + left)), at + 1), len(self.text))
            words = self.text.slice(at, end - at)
            numbered = pc.binary_join_element_wise(words, f"#{passed}", "")
            found.append(pc.if_else(self._once.slice(at, end - at), numbered, words))
            left -= float(self._ends[end - 1] - before)
            self._at[key] += end - at
        return {"key": pa.concat_arrays(found) if found else pa.array([], pa.string())}


class TableFeed(Ticking):
    """Writes a file for each site when a tick is over, on a thread, with the rows of all its queries in that tick.

    Args:
        directories: Where the files of each site appear, in the order of their places.
        rates: Those of queries, by number and place: which sites have rows of which.
        rows: Makes them.
        schema: Of the files.
        tick: Seconds.
    """

    def __init__(
        self,
        directories: Mapping[str, Path],
        rates: Mapping[tuple[int, int], float],
        rows: Rows,
        schema: pa.Schema,
        tick: float,
    ) -> None:
        super().__init__(tick)
        self._directories, self._rates, self._rows, self._schema = directories, rates, rows, schema
        self.rows = 0
        self.newest = 0
        """The end of the last tick whose rows are there, microseconds."""

    def end(self, later: float) -> None:
        """Let no more rows appear but one at each site that comes so many seconds later: it closes windows.

        Raises:
            RuntimeError: Files had stopped to appear.
        """
        self.stop()
        at = time.time_ns() // 1_000 + round(later * 1e6)
        for draft, path in self._drafts(at // self.tick, lambda place: [self._last(at)]):
            draft.rename(path)

    def drafts(self, number: int) -> list[tuple[Path, Path]]:
        """Write the files of a tick where nobody looks; return where they are, and where they will be."""
        return self._drafts(number, lambda place: self._tables(place, number))

    def over(self, number: int) -> None:
        """Note until when there are rows."""
        self.newest = number * self.tick

    def _drafts(self, number: int, tables: Callable[[int], list[pa.Table]]) -> list[tuple[Path, Path]]:
        found = []
        for place, (site, directory) in enumerate(self._directories.items()):
            draft = directory.parent / f"{site}-draft-{number}"
            with pq.ParquetWriter(draft, self._schema, compression="none") as writer:
                for table in tables(place):  # a row group for each query: who counts one reads only its own
                    writer.write_table(table)
            found.append((draft, directory / f"{number:012d}.parquet"))
        return found

    def _tables(self, place: int, number: int) -> list[pa.Table]:
        """Return the rows of a site in a tick, by query, and one that tells that the tick is over."""
        found = [self._last(number * self.tick)]
        for query, there in self._rates:
            if there == place:
                found.append(self._table(query, place, number))
                self.rows += len(found[-1])
        return found

    def _table(self, query: int, place: int, number: int) -> pa.Table:
        columns = self._rows(query, place, number)
        count = len(columns["key"])
        at = (number - 1) * self.tick + np.arange(count) * self.tick // max(count, 1)
        given = {"q": np.full(count, query, np.int32), "at": at, **columns}
        return pa.table([given[name] for name in self._schema.names], schema=self._schema)

    def raw(self, ticks: Collection[int]) -> int:
        """Return the bytes of all rows that came at the end of some ticks, by query and site as Arrow IPC with zstd.

        Their files are read again: to pack them as they are written would take cores from the sites.
        """
        size = 0
        for directory in self._directories.values():
            for path in (path for path in directory.glob("*.parquet") if int(path.stem) in ticks):
                with pq.ParquetFile(path) as file:
                    size += sum(len(packed(file.read_row_group(at))) for at in range(1, file.num_row_groups))
        return size

    def packed_rows(self, number: int) -> dict[tuple[int, int], bytes]:
        """Return the rows of a tick by query and place, packed; nobody else sees them."""
        return {(query, place): packed(self._table(query, place, number)) for query, place in self._rates}

    def _last(self, at: int) -> pa.Table:
        values: dict[str, Any] = dict.fromkeys(self._schema.names, 0)
        values |= {"q": NOBODYS, "at": at, "key": "" if pa.types.is_string(self._schema.field("key").type) else 0}
        return pa.Table.from_pylist([values], schema=self._schema)


def packed(rows: pa.Table) -> bytes:
    """Return rows without the query's number as Arrow IPC with zstd."""
    sink, table = pa.BufferOutputStream(), rows.drop_columns(["q"])
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())
