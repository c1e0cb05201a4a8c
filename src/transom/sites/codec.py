"""Parcels on a link, in few bytes: what the other end is known to have is not sent again.

Flows, schemas and keys get numbers on a link. A number is used when the other end has confirmed the parcel that brought
what it stands for, so that parcels may overtake one another. The dictionary of keys grows up to a bound, and is
forgotten when the connection breaks; a parcel that refers to what is forgotten is asked for in full.

The rows of a parcel are put in the order of their panes and keys, which is no part of what they say: so the numbers of
the keys are a growing sequence. What states tell of one another is not sent, either (`related`).
"""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.engine.partials.tables import PANE
from transom.errors import SiteError
from transom.sites.columns import Ints, Reader, Writer, damaged
from transom.sites.related import Related, Told
from transom.sites.remembered import Columns, Got, Keys, News, Sent
from transom.widearea.bodies import MOST_BYTES, from_body, to_body
from transom.widearea.parcels import Body, Parcel
from transom.windows.keys import KeyIndex
from transom.windows.partials import ordered

DICTIONARY_BYTES = 16 << 20
"""Of the keys of one flow, at each end."""
_HEAD = struct.Struct(">4sIII")
"""Magic, generation, bytes of the header packed and unpacked."""
_MAGIC = b"TrW2"
_MOST_HEADER = 1 << 20
_MOST_SCHEMA = 4 << 20
_MOST_NOTES = 1 << 20
"""Bytes of a schema, and of what has to be known to read columns."""
_MOST_GAPS = 1 << 20
"""Keys with smaller numbers that may not have come yet, or never will."""
_MOST_NEWS = 1_000
"""Parcels that may be confirmed; what earlier ones brought is sent again where it is needed."""
_LEVEL, _LEVEL_OF_WIDE = 6, 4
"""Of zstd; the second where most bytes are of wide numbers, which no level makes much smaller."""


class LinkPacking:
    """The form of the parcels between this site and one neighbour, in both directions.

    Args:
        dictionary_bytes: Of the keys of one flow.
        most: The largest table that is taken, bytes.
    """

    def __init__(self, dictionary_bytes: int = DICTIONARY_BYTES, most: int = MOST_BYTES) -> None:
        self.dictionary_bytes, self.most = dictionary_bytes, most
        self._generation = 1
        self._sent = Sent()
        self._packed: News | None = None
        self._news: dict[int, News] = {}
        self._got: dict[int, Got] = {}

    # Sending

    def pack(self, parcel: Parcel, full: bool) -> bytes:
        """Return the bytes of a parcel; in full if they have to be readable without anything before."""
        plain = json.dumps(parcel.header(), separators=(",", ":")).encode()
        known = b"" if full else self._sent.headers.get(parcel.flow, b"")
        header = _deflated(plain, known)
        self._packed = news = News(0 if full else self._generation, parcel.flow, plain)
        start = _HEAD.pack(_MAGIC, news.generation, len(header), len(plain)) + zlib.crc32(known).to_bytes(4, "big")
        table = from_body(parcel.body)
        return start + header + (b"" if table is None else self._table(table, parcel.flow, news, full))

    def named(self, number: int) -> None:
        """Learn the number that the parcel packed last has on the link."""
        if self._packed is not None and self._packed.generation:
            self._news[number] = self._packed
            while len(self._news) > _MOST_NEWS:  # some are abandoned, and never confirmed
                del self._news[next(iter(self._news))]
        self._packed = None

    def confirmed(self, number: int) -> None:
        """Learn that the other end has read a parcel: what it brought may be referred to."""
        news = self._news.pop(number, None)
        if news is None or news.generation != self._generation:
            return
        self._sent.headers[news.flow] = news.header
        if news.schema is not None:
            self._sent.confirmed.add(news.schema)
        if len(news.ids) and self._sent.schemas[news.flow][0] == news.schema:  # else they are keys of before
            self._sent.keys[news.flow].learn(news.ids, news.numbers)

    def broken(self) -> None:
        """Forget what was confirmed: the connection broke."""
        self._generation += 1
        self._sent, self._news, self._packed = Sent(), {}, None

    def _table(self, table: pa.Table, flow: str, news: News, full: bool) -> bytes:
        names = [name for name in table.column_names if not name.startswith("_s") and name != PANE]
        number, told = self._schema(table.schema, flow, news, full)
        keys = table.select(names)
        ids, order, fresh, first = self._numbers(table, keys, flow, news, full)
        writer = Writer()
        panes = _panes(table)[order]
        writer.ints(np.diff(panes, prepend=0))
        writer.ints(_steps(panes, ids[order]))
        writer.notes.append([first, fresh.num_rows])
        for column in fresh.columns:
            writer.column(_array(column))
        told_by = None if full else self._sent.told.setdefault(flow, Told())
        states = Related(told_by, table.num_rows)
        rest = [at for at, name in enumerate(table.column_names) if name not in names and name != PANE]
        states.write_all(writer, [_array(table.column(at)) for at in rest], order)
        schema = table.schema.serialize().to_pybytes() if told else b""
        notes = json.dumps([number, len(schema), table.num_rows, writer.notes], separators=(",", ":")).encode()
        plain = len(notes).to_bytes(4, "big") + notes + schema + writer.data
        level = _LEVEL if 2 * writer.wide < len(plain) else _LEVEL_OF_WIDE
        packed = pa.Codec("zstd", compression_level=level).compress(plain, asbytes=True)
        return len(plain).to_bytes(8, "big") + bytes(packed)

    def _schema(self, schema: pa.Schema, flow: str, news: News, full: bool) -> tuple[int, bool]:
        """Return the number of a schema, and whether it has to be sent itself."""
        if full:
            return 0, True
        number, known = self._sent.schemas.get(flow, (0, None))
        if known is None or not known.equals(schema, check_metadata=True):
            number = max((each for each, _ in self._sent.schemas.values()), default=0) + 1
            self._sent.schemas[flow] = (number, schema)
            self._sent.keys.pop(flow, None)
            self._sent.told.pop(flow, None)
        news.schema = number
        return number, number not in self._sent.confirmed

    def _numbers(
        self, table: pa.Table, keys: pa.Table, flow: str, news: News, full: bool
    ) -> tuple[Ints, Ints, pa.Table, int]:
        """Return the number of each row's key, an order of the rows, the keys to be sent, and their first number.

        The first number is -1 where the other end is to forget them again.
        """
        known = None if full else self._sent.keys.get(flow)
        if known is None and not full:
            known = self._sent.keys[flow] = Keys(KeyIndex(keys.schema))
        forgets = known is None or known.index.nbytes > self.dictionary_bytes
        if known is None or (forgets and not known.given):
            known = Keys(KeyIndex(keys.schema))
        if not keys.num_columns:
            ids = np.zeros(table.num_rows, np.int64)
            return ids, ordered([_panes(table)]), keys, 0
        index = known.index.copy() if forgets else known.index  # nothing is added to what is full
        rows = index.intern(keys)
        ids = known.numbers_of(rows)
        unknown = np.flatnonzero(ids < 0)
        new, first_rows, which = np.unique(rows[unknown], return_index=True, return_inverse=True)
        fresh = keys.take(pa.array(unknown[first_rows]))
        if len(new) and _sorts(keys.schema.types[0]):  # neighbours begin alike, which a compressor finds
            order = pc.sort_indices(_array(fresh.column(0))).to_numpy()
            new, fresh, which = new[order], fresh.take(pa.array(order)), np.argsort(order)[which]
        first = known.given
        ids[unknown] = first + which
        if not forgets:
            known.given += len(new)
            news.ids, news.numbers = new, np.arange(first, known.given)
        return ids, ordered([_panes(table), ids]), fresh, -1 - first if forgets else first

    # Receiving

    def unpack(self, data: bytes) -> Parcel | None:
        """Return the parcel of some bytes; None where they refer to what is forgotten.

        Raises:
            SiteError: They are damaged, or larger than allowed.
        """
        at = _HEAD.size + 4
        if len(data) < at:
            raise damaged("it ends too early")
        magic, generation, packed, plain = _HEAD.unpack_from(data)
        if magic != _MAGIC or plain > _MOST_HEADER or packed > len(data) - at:
            raise damaged("it is no parcel")
        got = self._of(generation)
        known = got.headers.get(int.from_bytes(data[at - 4 : at], "big"))
        if known is None:
            return None
        header = _inflated(data[at : at + packed], plain, known)
        body: Body | None = b""
        if len(data) > at + packed:
            body = self._untable(data[at + packed :], got)
        if body is None:
            return None
        try:
            parcel = Parcel.of(json.loads(header), body)
        except (ValueError, RecursionError) as error:
            raise damaged(f"its header is {error}") from error
        if generation:
            got.keep(header)
        return parcel

    def _of(self, generation: int) -> Got:
        """Return what came in a generation; the last two are kept, as parcels go on over a new connection."""
        if not generation:
            got = Got()
        else:
            got = self._got.setdefault(generation, Got())
            for old in sorted(self._got)[:-2]:
                del self._got[old]
        return got

    def _untable(self, data: bytes, got: Got) -> Body | None:
        size = int.from_bytes(data[:8], "big")
        if size > self.most or len(data) < 8:
            raise SiteError(
                f"A parcel declares a table of {size} bytes, where {self.most} are allowed.",
                "Send more often, or allow more.",
            )
        try:
            plain = bytes(pa.decompress(data[8:], decompressed_size=size, codec="zstd", asbytes=True))
            at = 4 + int.from_bytes(plain[:4], "big")
            if at > _MOST_NOTES:
                raise damaged("it has more to say of its columns than there can be")
            notes = json.loads(plain[4:at])
            number, told, rows, columns = notes
            if not all(type(each) is int and each >= 0 for each in (number, told, rows)) or told > len(plain) - at:
                raise damaged("its table has other numbers")
            if told > _MOST_SCHEMA:
                raise damaged("its columns have too long names")
            if told:
                got.schemas[number] = Columns.of(pa.ipc.read_schema(pa.py_buffer(plain[at : at + told])))
                got.bytes[number] = max(told, got.bytes.get(number, 0))
                got.bound(self.most)
            schema = got.schemas.get(number)
            if schema is None:
                return None
            table = self._rows(Reader(columns, plain[at + told :], self.most // 8), schema, rows, number, got)
            if table is None:
                return None
            table.validate(full=True)
            return to_body(table)
        except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise damaged(str(error)) from error

    def _rows(self, reader: Reader, held: Columns, rows: int, number: int, got: Got) -> pa.Table | None:
        panes = np.cumsum(reader.ints(rows))
        ids = _unsteps(panes, reader.ints(rows))
        note = reader.note()
        if not (isinstance(note, list) and len(note) == 2 and all(type(each) is int for each in note)) or note[1] < 0:
            raise damaged("its keys have no number")
        first, count = note
        fresh = pa.Table.from_arrays([reader.column(kind, count) for kind in held.keys.types], schema=held.keys)
        keys = self._keys(fresh, first, count, ids, number, got) if held.keys.names else fresh
        if keys is None:
            return None
        columns, states = [], Related()
        for name, kind in held.columns:
            if name == PANE:
                columns.append(pa.array(panes))
            elif name.startswith("_s"):
                columns.append(states.read(reader, kind, rows))
            else:
                columns.append(keys.column(name))
        return pa.Table.from_arrays(columns, schema=held.schema)

    def _keys(self, fresh: pa.Table, first: int, count: int, ids: Ints, number: int, got: Got) -> pa.Table | None:
        """Return the key of each row, and keep those that came; None where one is not known."""
        start = first if first >= 0 else -1 - first
        tables, places = got.keys.setdefault(number, []), got.rows.get(number, np.empty(0, np.int64))
        before = sum(table.num_rows for table in tables)
        if start > before + _MOST_GAPS:
            raise damaged("its keys have too high numbers")
        grown = np.full(max(len(places), start + count), -1, np.int64)
        grown[: len(places)] = places
        grown[start : start + count] = np.arange(before, before + count)
        if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= len(grown) or int(grown[ids].min()) < 0):
            return None
        whole = pa.concat_tables([*tables, fresh]).combine_chunks() if count or not tables else tables[0]
        if first >= 0 and count:
            got.bytes[number] = whole.nbytes + grown.nbytes
            if whole.nbytes > 2 * self.dictionary_bytes + (1 << 20):
                raise damaged("its keys take more than is allowed")
            got.keys[number], got.rows[number] = [whole], grown
            got.bound(self.most)
        return whole.take(pa.array(grown[ids]))


def _panes(table: pa.Table) -> Ints:
    panes: Ints = table.column(PANE).to_numpy().astype(np.int64)
    return panes


def _sorts(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_integer(kind))


def _array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array


def _steps(panes: Ints, ids: Ints) -> Ints:
    """Return how far each number is from the one before in its pane; the first of a pane as it is."""
    steps = np.diff(ids, prepend=0)
    begins = np.diff(panes, prepend=panes[:1] - 1) != 0
    steps[begins] = ids[begins]
    return steps


def _unsteps(panes: Ints, steps: Ints) -> Ints:
    """Return the numbers of `_steps`."""
    if not len(steps):
        return steps
    begins = np.flatnonzero(np.diff(panes, prepend=panes[:1] - 1) != 0)
    total = np.cumsum(steps)
    before = total[begins] - steps[begins]
    ids: Ints = total - np.repeat(before, np.diff(np.append(begins, len(steps))))
    return ids


def _deflated(plain: bytes, known: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=known) if known else zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(plain) + packer.flush()


def _inflated(packed: bytes, size: int, known: bytes) -> bytes:
    unpacker = zlib.decompressobj(-15, zdict=known) if known else zlib.decompressobj(-15)
    try:
        plain = unpacker.decompress(packed, size + 1)
    except zlib.error as error:
        raise damaged(f"its header is {error}") from error
    if len(plain) != size:
        raise damaged("its header is of another length")
    return plain
