"""A file that grows at its end: on this machine one file, in a store of objects a folder of pieces.

Pieces are numbered and each is put only where nothing is yet. That is what keeps out a writer that was overtaken:
whoever takes over puts a seal behind the last one, and what the other writes next finds its place taken.

    NAME/000000000001    "+" and bytes that were appended
    NAME/000000000002    "=" and bytes that replace all before
    NAME/000000000003    "." and random text: whoever wrote so far is shut out

A seal stays when the journal is removed, for as long as the one who was shut out may live: for ever.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from transom.storage.durable import remove_tree, replacing, write_all
from transom.storage.places import ObjectPath, Place
from transom.storage.several import each_of

_APPENDED, _REPLACED, _SEALED = b"+", b"=", b"."
_SEAL_BYTES = 17
_AT_ONCE = 16
"""Pieces that are read at the same time."""


class TakenOver(OSError):
    """A journal that somebody else goes on with."""


class Journal(Protocol):
    """A file that is open for appending."""

    @property
    def pieces(self) -> int:
        """Objects that it consists of; 1 for a file."""

    def append(self, data: bytes) -> None:
        """Write at the end; what was written may be lost until `sync` returns.

        Raises:
            OSError: A part of it may be there.
        """

    def sync(self) -> None:
        """Make all that was written durable.

        Raises:
            TakenOver: Somebody else goes on with it; nothing that was written since the last call counts.
            OSError: It is not known what is durable.
        """

    def replace(self, content: bytes) -> None:
        """Let it hold something else from now on, durably and at once.

        Raises:
            TakenOver: Somebody else goes on with it; it holds what they have written.
            OSError: It holds what it held, or the content.
        """

    def cut_off(self, length: int) -> None:
        """Take back what is behind a length, after an error of `append` or `sync`."""

    def close(self) -> None:
        """Close it, without making anything durable."""


def open_journal(path: Place, content: bytes | None = None) -> Journal:
    """Return a journal, ready for appending.

    Args:
        path: Where it is.
        content: What it holds from now on, durably and at once; None goes on with what there is, and shuts out whoever
            has it open in a store. Whoever has it open uses `Journal.replace` instead.
    """
    if isinstance(path, Path):
        if content is not None:
            with replacing(path) as file:
                file.write(content)
        return _LocalJournal(path)
    return _Pieces(path, content)


def read_journal(path: Place) -> bytes:
    """Return what is in a journal.

    Raises:
        FileNotFoundError: There is none.
    """
    if isinstance(path, Path):
        return path.read_bytes()
    return b"".join(piece[1:] for piece in _pieces(path) if not piece.startswith(_SEALED))


def seal_journal(path: Place) -> None:
    """Shut out whoever has a journal in a store open: what they write from now on fails with TakenOver.

    What they have called durable is read by `read_journal` afterwards, also where listings lag.
    """
    if not isinstance(path, Path):
        _sealed(path, max(_numbers(path), default=0))


def journal_exists(path: Place) -> bool:
    """Tell whether there is a journal; seals alone are none."""
    return path.exists() if isinstance(path, Path) else bool(_but_seals(path.parent, path.name, _sizes(path)))


def remove_journals(directory: Place, names: Collection[str]) -> None:
    """Remove journals in a directory; nothing happens where there is none.

    In a store their seals stay, so that also from now on whoever was shut out finds the next place taken.
    """
    if isinstance(directory, Path):
        for name in names:
            (directory / name).unlink(missing_ok=True)
        return
    pieces: dict[str, dict[str, int]] = {}
    for entry in directory.walk() if names else ():
        journal, _, number = entry.name.partition("/")
        if journal in names and entry.stat and number.isdecimal():
            pieces.setdefault(journal, {})[number] = entry.stat.st_size
    removed = [
        f"{journal}/{number}" for journal, sizes in pieces.items() for number in _but_seals(directory, journal, sizes)
    ]
    directory.remove(removed)


def clear_directory(directory: Place) -> None:
    """Remove a directory with all that is in it, as far as that is possible; nothing happens when there is none.

    In a store whoever has a journal right in it open is shut out, and the seals stay.
    """
    if isinstance(directory, Path):
        remove_tree(directory)
        return
    with suppress(OSError):
        folders = [entry.name for entry in directory.entries() if entry.stat is None]
        journals = {name for name in folders if _numbers(directory / name)}
        for name in journals:
            if journal_exists(directory / name):
                seal_journal(directory / name)
        remove_journals(directory, journals)
        for name in set(folders) - journals:
            remove_tree(directory / name)
        directory.remove([entry.name for entry in directory.entries() if entry.stat])


def _sizes(folder: ObjectPath) -> dict[str, int]:
    return {e.name: e.stat.st_size for e in folder.entries() if e.stat and e.name.isdecimal()}


def _but_seals(directory: ObjectPath, journal: str, sizes: Mapping[str, int]) -> list[str]:
    """Return the pieces of a journal that are no seals; of one that was removed before, without asking."""
    perhaps = [number for number, size in sizes.items() if size == _SEAL_BYTES]
    if len(perhaps) == len(sizes):
        return []
    seals = [n for n in perhaps if (_found(directory / journal, int(n)) or b"").startswith(_SEALED)]
    return [number for number in sizes if number not in seals]


class _LocalJournal:
    """A file that is appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = self._opened()
        self.pieces = 1

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def append(self, data: bytes) -> None:
        write_all(self._handle, data)

    def sync(self) -> None:
        os.fsync(self._handle)

    def replace(self, content: bytes) -> None:
        with replacing(self._path) as file:
            file.write(content)
        self.close()
        self._handle = self._opened()

    def cut_off(self, length: int) -> None:
        os.ftruncate(self._handle, length)

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._handle)
        self._handle = -1


class _Pieces:
    """A folder of pieces, of which this one puts the next."""

    def __init__(self, folder: ObjectPath, content: bytes | None) -> None:
        self._folder = folder
        self._waiting = bytearray()
        self._broken: OSError | None = None
        self._numbers = _numbers(folder)
        self._last = max(self._numbers, default=0)
        if content is None:
            self._last = _sealed(folder, self._last)
            self._numbers.append(self._last)
        else:
            self.replace(content)

    @property
    def pieces(self) -> int:
        return len(self._numbers)

    def append(self, data: bytes) -> None:
        if self._broken:
            raise self._broken
        self._waiting += data

    def sync(self) -> None:
        if self._waiting:
            self._put(_APPENDED + bytes(self._waiting))
            self._waiting.clear()

    def _put(self, piece: bytes) -> None:
        path = self._folder / _name(self._last + 1)
        try:
            if not path.put_new(piece):
                raise TakenOver(errno.EEXIST, "another application has written there", str(path))
        except OSError as error:
            self._broken = error  # the piece may be there
            raise
        self._last += 1
        self._numbers.append(self._last)

    def replace(self, content: bytes) -> None:
        older = [*self._numbers]
        self._put(_REPLACED + content)  # behind our own last piece, not behind those of whoever has taken over
        self._waiting.clear()
        with suppress(OSError):  # they count for nothing; the next replacement removes what is left
            self._folder.remove(map(_name, older))
            self._numbers = [self._last]

    def cut_off(self, length: int) -> None:
        self._waiting.clear()

    def close(self) -> None:
        self._waiting.clear()


def _name(number: int) -> str:
    return f"{number:012d}"


def _numbers(folder: ObjectPath) -> list[int]:
    return [int(entry.name) for entry in folder.entries() if entry.stat and entry.name.isdecimal()]


def _sealed(folder: ObjectPath, last: int) -> int:
    """Put a seal behind the last piece, and return its number; nobody else puts the same one."""
    seal = _SEALED + secrets.token_hex(8).encode()
    while not (folder / _name(last + 1)).put_new(seal):
        last += 1
    return last + 1


def _pieces(folder: ObjectPath) -> list[bytes]:
    """Return the pieces that count, in order; those that a listing does not show yet are looked for by their names."""
    numbers = _numbers(folder)
    found = dict(zip(numbers, _read(folder, numbers), strict=True))
    last = max(numbers, default=0)
    while (piece := _found(folder, last + 1)) is not None:
        last += 1
        found[last] = piece
    start = max((number for number, piece in found.items() if (piece or b"").startswith(_REPLACED)), default=last + 1)
    counting = [found.get(number) or _found(folder, number) for number in range(start, last + 1)]
    whole = [piece for piece in counting if piece is not None]
    if not whole or len(whole) < len(counting):
        raise FileNotFoundError(errno.ENOENT, "there is no such object, or a piece of it is missing", str(folder))
    return whole


def _found(folder: ObjectPath, number: int) -> bytes | None:
    try:
        return (folder / _name(number)).read_bytes()
    except FileNotFoundError:
        return None


def _read(folder: ObjectPath, numbers: Sequence[int]) -> list[bytes | None]:
    return each_of(numbers, lambda number: _found(folder, number), _AT_ONCE)
