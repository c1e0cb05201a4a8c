"""Plain files of JSON lines: each line is at most one object, so that no reader can leave out anything.

Spark's reader takes the first value of a line and drops the rest. Where it is known that nothing can follow the first
value, whether that value can be parsed or not, it reads exactly. A look at the bytes tells that for most files, at a
small part of what parsing costs; for a file that is not plain (also one that could be) there is an exact way.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np

from transom.storage.places import is_local
from transom.storage.unpacking import UNPACKING_ERRORS, opened_text

BLOCK = 4 << 20
"""Bytes that are looked at together; a file with a longer line is not plain."""
_PACKED = (".bz2", ".deflate", ".lz4", ".snappy", ".xz")
_MARK = b"\xef\xbb\xbf"
_SURROGATES = (b"\\ud", b"\\uD")
_STRUCTURE = b"\n\"'{}"
_OTHERS = bytes(set(range(256)) - set(_STRUCTURE))
_NEWLINE, _QUOTE, _SINGLE, _OPEN, _CLOSE = _STRUCTURE[0], _STRUCTURE[1], _STRUCTURE[2], _STRUCTURE[3], _STRUCTURE[4]


def is_plain_file(path: str) -> bool:
    """Tell whether a file is plain JSON lines; False when it cannot be read, or unpacked here.

    What is in a store is not looked at: it would come to the driver for that, which the executors can do without.
    """
    if path.endswith(_PACKED) or not is_local(path):
        return False
    try:
        with opened_text(path) as file:
            return all(map(is_plain, _blocks(file)))
    except UNPACKING_ERRORS:
        return False


def is_utf8_file(path: str) -> bool:
    """Tell whether a file of text is valid UTF-8; False when it cannot be read, or unpacked here.

    What is in a store is not looked at.
    """
    if path.endswith(_PACKED) or not is_local(path):
        return False
    try:
        with opened_text(path) as file:
            return all(map(_is_utf8, _blocks(file)))
    except UNPACKING_ERRORS:
        return False


def _blocks(file: io.BufferedReader) -> Iterator[bytes]:
    """Yield whole lines, each with its end, about `BLOCK` bytes at a time; nothing for a line that is longer."""
    while block := file.read(BLOCK):
        while not block.endswith(b"\n"):
            more = file.readline(BLOCK)
            block += more or b"\n"
            if len(more) == BLOCK:
                yield b""
        yield block


def is_plain(lines: bytes) -> bool:
    r"""Tell whether each of some lines, which end in newlines, is at most one object.

    Each begins with an opening and ends with a closing brace, and that is the first that can close the object.

    >>> is_plain(b'{"a":1}\n{"a":{"b":"}"}}\n{"a":\n}\n'), is_plain(b'{"a":1}{"a":2}\n')
    (False, False)
    >>> is_plain(b'{"a":1}\n{"a":{"b":"}"}}\n{"a"}\n')
    True
    """
    if not lines.endswith(b"\n") or not _means_one_text(lines):
        return False
    letters = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(letters == _NEWLINE)
    if letters[0] != _OPEN or (letters[ends[:-1] + 1] != _OPEN).any() or (letters[ends - 1] != _CLOSE).any():
        return False
    return np.count_nonzero(letters == _CLOSE) == len(ends) or _closes_last(lines, len(ends))


def _means_one_text(lines: bytes) -> bool:
    """Tell whether bytes are the same text to every reader.

    A NUL and a byte order mark change how bytes are decoded, at a carriage return a line ends, and of half a character
    (an escaped surrogate) bytes and text make different names. Single bytes are found ten times as fast as longer
    ones, which are looked for only where they can be.
    """
    if b"\0" in lines or b"\r" in lines:
        return False
    if b"\\" in lines and any(half in lines for half in _SURROGATES):
        return False
    return lines.isascii() or (_MARK not in lines and _is_utf8(lines))


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _closes_last(lines: bytes, count: int) -> bool:
    """Tell whether the object that each of `count` lines begins with is closed by the last brace, if it is ever closed.

    Text that parses has whole strings, so the braces outside them are those of objects. A single quote outside a string
    may begin one for Spark: such lines are not plain. In a string no newline is allowed, so each line has all of its.
    """
    if b"\\" in lines:
        lines = lines.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(lines.translate(None, _OTHERS), np.uint8)
    quotes = marks == _QUOTE
    outside = np.bitwise_xor.accumulate(quotes) == 0
    marks = marks[outside & ~quotes]
    if np.count_nonzero(marks == _NEWLINE) != count or (marks == _SINGLE).any():
        return False
    steps = (marks == _OPEN).astype(np.int8) - (marks == _CLOSE).astype(np.int8)
    depths = np.cumsum(steps, dtype=np.int32)
    ends = marks == _NEWLINE
    # At depth 0 are the newlines and the brace before each; were there another, something would be after an object.
    return bool((depths[ends] == 0).all() and np.count_nonzero(depths == 0) == 2 * count and depths.min() >= 0)
