"""Columns of Arrow as few bytes as they need, before a compressor sees them; and back, trusting nothing.

Whole numbers take the bytes that their range needs, a constant takes none; bytes of one weight lie together, so that a
compressor finds those that are zero. Floats that are decimal fractions are whole numbers. What is made of bytes is
checked: no length is believed that the bytes do not have, and no more values are made than were declared and allowed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.errors import SiteError

Ints = NDArray[np.int64]
WIDE = 6
_LONG = pa.int64().id
_SCALES = (1.0, 10.0, 100.0, 1000.0)
_EXACT = float(1 << 53)
_REMEDY = "Both sites need the same version of the protocol; if they have it, something between them changes bytes."


def damaged(what: str) -> SiteError:
    """Return the error for bytes that are not what they should be."""
    return SiteError(f"The partials of a parcel cannot be read: {what}.", _REMEDY)


class Writer:
    """Bytes, and beside them what has to be known to read them."""

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.wide = 0
        """Bytes of numbers that take `WIDE` or more of them."""
        self._parts: list[bytes] = []

    @property
    def data(self) -> bytes:
        """All bytes."""
        return b"".join(self._parts)

    def raw(self, data: bytes) -> None:
        """Write bytes with their number."""
        self.notes.append(len(data))
        self._parts.append(data)

    def ints(self, values: Ints, bounds: tuple[int, int] | None = None) -> None:
        """Write whole numbers, given the least and the largest of them if they are known."""
        if not len(values):
            return
        low, high = (int(values.min()), int(values.max())) if bounds is None else bounds
        width = ((high - low).bit_length() + 7) // 8
        self.notes.append([low, width])
        if width:
            above = values.view(np.uint64) - np.uint64(low & (1 << 64) - 1)
            planes = above.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
            self._parts.append(planes.T.tobytes())
            self.wide += planes.size if width >= WIDE else 0

    def fixed(self, values: NDArray[Any], size: int) -> None:
        """Write values of so many bytes each as they are, bytes of one weight together."""
        self._parts.append(values.view(np.uint8).reshape(-1, size).T.tobytes())

    def floats(self, values: NDArray[np.float64]) -> None:
        """Write floats: as whole numbers where they are such, or decimal fractions, exactly."""
        for place, scale in enumerate(_SCALES):
            scaled = np.rint(values * scale)
            if not np.all(np.abs(scaled) < _EXACT):
                break
            whole = scaled.astype(np.int64)
            if np.array_equal((whole / scale).view(np.int64), values.view(np.int64)):
                self.notes.append(place)
                self.ints(whole)
                return
        self.notes.append(-1)
        self.fixed(values, 8)

    def numbers(self, values: NDArray[Any], bounds: tuple[int, int] | None = None) -> None:
        """Write a column without nulls, of whole numbers or floats."""
        self.notes.append(0)
        if values.dtype == np.float64:
            self.floats(values)
        else:
            self.ints(values, bounds)

    def column(self, array: pa.Array) -> None:
        """Write a column.

        Raises:
            SiteError: Its type cannot travel.
        """
        nulls = array.null_count
        self.notes.append(nulls)
        if nulls:
            self.raw(np.packbits(array.is_valid().to_numpy(zero_copy_only=False)).tobytes())
        kind = array.type
        if pa.types.is_null(kind):
            return
        if nulls and not (pa.types.is_struct(kind) or _is_list(kind)):
            array = array.drop_null()
        if pa.types.is_boolean(kind):
            self.ints(array.cast(pa.int8()).to_numpy().astype(np.int64))
        elif pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and _bits(kind) in (32, 64)):
            self.ints(as_ints(array))
        elif pa.types.is_float64(kind):
            self.floats(array.to_numpy(zero_copy_only=False))
        elif pa.types.is_float32(kind):
            self.fixed(array.to_numpy(zero_copy_only=False), 4)
        elif pa.types.is_decimal128(kind):
            self.fixed(_bytes_of(array, 16), 16)
        elif _is_text(kind):
            lengths = pc.binary_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
            self.ints(lengths)
            self.raw(_joined(array))
        elif _is_list(kind):
            lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
            self.ints(lengths)
            values = array.flatten()
            self.notes.append(len(values))
            self.column(values)
        elif pa.types.is_struct(kind):
            for child in array.flatten():
                self.column(child)
        else:
            raise SiteError(f"Partials with a column of the type {kind} cannot travel.", "Use another aggregate.")


class Reader:
    """What a `Writer` wrote.

    Args:
        notes: What is to be known; from the other site, so of any form.
        data: The bytes.
        most: Values that may be made of them, in all columns together.
    """

    def __init__(self, notes: Any, data: bytes, most: int) -> None:
        self._notes = iter(notes if isinstance(notes, list) else ())
        self._data, self._at, self._left = data, 0, most

    def note(self) -> Any:
        """Return the next note."""
        try:
            return next(self._notes)
        except StopIteration:
            raise damaged("it ends too early") from None

    def number(self, most: int = 1 << 62) -> int:
        """Return the next note, a number from 0 on."""
        value = self.note()
        if type(value) is not int or not 0 <= value <= most:
            raise damaged(f"{value!r} is no number up to {most}")
        return value

    def take(self, size: int) -> bytes:
        """Return so many bytes."""
        if size > len(self._data) - self._at:
            raise damaged("it ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def raw(self) -> bytes:
        """Return what `raw` wrote."""
        return self.take(self.number())

    def ints(self, count: int) -> Ints:
        """Return so many whole numbers."""
        if not count:
            return np.empty(0, np.int64)
        self.spend(count)
        note = self.note()
        if not isinstance(note, list) or len(note) != 2 or type(note[0]) is not int or type(note[1]) is not int:
            raise damaged(f"{note!r} is no range")
        low, width = note
        if not (-(1 << 63) <= low < 1 << 63 and 0 <= width <= 8):
            raise damaged(f"{note!r} is no range")
        if not width:
            return np.full(count, low, np.int64)
        above = np.zeros((count, 8), np.uint8)
        above[:, :width] = np.frombuffer(self.take(count * width), np.uint8).reshape(width, count).T
        return (above.view("<u8").ravel() + np.uint64(low & (1 << 64) - 1)).view(np.int64)

    def fixed(self, count: int, size: int) -> NDArray[np.uint8]:
        """Return so many values of so many bytes each, shape (count, size)."""
        self.spend(count)
        planes = np.frombuffer(self.take(count * size), np.uint8).reshape(size, count)
        return np.ascontiguousarray(planes.T)

    def floats(self, count: int) -> NDArray[np.float64]:
        """Return so many floats."""
        place = self.note()
        if place == -1:
            return self.fixed(count, 8).view(np.float64).ravel()
        if type(place) is not int or not 0 <= place < len(_SCALES):
            raise damaged(f"{place!r} is no scale")
        values: NDArray[np.float64] = self.ints(count) / _SCALES[place]
        return values

    def column(self, kind: pa.DataType, count: int) -> pa.Array:
        """Return a column of so many values."""
        return self.rest(kind, count, self.number(count))

    def rest(self, kind: pa.DataType, count: int, nulls: int) -> pa.Array:
        """Return a column of so many values, of whose nulls the number was read."""
        there = count - nulls
        valid = None
        if nulls:
            self.spend(nulls)
            bits = np.unpackbits(np.frombuffer(self.raw(), np.uint8))
            if len(bits) < count or int(bits[:count].sum()) != there:
                raise damaged("nulls are miscounted")
            valid = bits[:count].astype(bool)
        if pa.types.is_null(kind):
            self.spend(count)
            return pa.nulls(count)
        if pa.types.is_struct(kind) or _is_list(kind):
            return self._nested(kind, count, valid)
        array = self._plain(kind, there)
        if valid is None:
            return array
        places = pa.array(np.cumsum(valid) - 1, pa.int64(), mask=~valid)
        return array.take(places)

    def _plain(self, kind: pa.DataType, count: int) -> pa.Array:
        if pa.types.is_boolean(kind):
            return pa.array(self.ints(count) != 0)
        if pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and _bits(kind) in (32, 64)):
            plain = pa.array(self.ints(count))
            if pa.types.is_integer(kind):
                return plain.view(kind) if pa.types.is_uint64(kind) else plain.cast(kind)
            return (plain if _bits(kind) == 64 else plain.cast(pa.int32())).view(kind)
        if pa.types.is_float64(kind):
            return pa.array(self.floats(count), kind)
        if pa.types.is_float32(kind):
            return pa.array(self.fixed(count, 4).view(np.float32).ravel(), kind)
        if pa.types.is_decimal128(kind):
            values = pa.py_buffer(self.fixed(count, 16).tobytes())
            return pa.Array.from_buffers(kind, count, [None, values])
        if _is_text(kind):
            lengths = self.ints(count)
            data = self.raw()
            if count and (int(lengths.min()) < 0 or int(lengths.sum()) != len(data)):
                raise damaged("texts are of other lengths")
            wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64 if wide else np.int32)
            return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        raise damaged(f"columns of the type {kind} do not travel")

    def _nested(self, kind: pa.DataType, count: int, valid: NDArray[np.bool_] | None) -> pa.Array:
        mask = None if valid is None else pa.array(~valid)
        if pa.types.is_struct(kind):
            self.spend(count)
            children = [self.column(kind.field(i).type, count) for i in range(kind.num_fields)]
            return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
        lengths = self.ints(count)
        total = self.number()
        if count and (int(lengths.min()) < 0 or int(lengths.max()) > total or int(lengths.sum()) != total):
            raise damaged("lists are of other lengths")
        values = self.column(kind.value_type, total)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)

    def spend(self, count: int) -> None:
        """Take note of so many values that are made.

        Raises:
            SiteError: There are more than are allowed.
        """
        self._left -= count
        if self._left < 0:
            raise damaged("it has more values than are allowed")


def _is_text(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(check(kind) for check in checks)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind))


def _bits(kind: pa.DataType) -> int:
    return int(kind.bit_width)


def as_ints(array: pa.Array) -> Ints:
    """Return whole numbers or times, none of them null, as numbers of 64 bits."""
    kind = array.type
    if kind.id == _LONG:  # the same, with less around it
        numbers: Ints = array.to_numpy()
        return numbers
    if pa.types.is_temporal(kind):
        array = array.view(pa.int64() if _bits(kind) == 64 else pa.int32())
    elif pa.types.is_uint64(kind):
        array = array.view(pa.int64())
    values: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def _bytes_of(array: pa.Array, size: int) -> NDArray[np.uint8]:
    values = np.frombuffer(array.buffers()[1], np.uint8)
    return values[array.offset * size : (array.offset + len(array)) * size]


def _joined(array: pa.Array) -> bytes:
    """Return the bytes of texts one after another."""
    if not len(array):
        return b""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    offsets = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32)
    first, last = int(offsets[array.offset]), int(offsets[array.offset + len(array)])
    data = array.buffers()[2]
    return b"" if data is None else data.slice(first, last - first).to_pybytes()
