"""Damage to the files of a directory, chosen at random: what disks, programs and people do to them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

KINDS = ("flip", "cut", "cut line", "remove", "double", "double line", "drop line", "swap lines", "older", "other")


def files_of(directory: Path) -> list[Path]:
    """Return all files below a directory, relative to it."""
    return sorted(path.relative_to(directory) for path in directory.rglob("*") if path.is_file())


def inflict(draw: random.Random, directory: Path, older: Sequence[Path], only: str = "") -> str:
    """Damage one file, and return what was done.

    Args:
        draw: Chooses.
        directory: Where the file is; for every kind of damage that changes nothing another one is tried.
        older: Earlier copies of the directory.
        only: What the file's path must contain.
    """
    chosen = [path for path in files_of(directory) if only in str(path)]
    kinds = sorted({_kind(path) for path in chosen})
    while True:
        of_kind = draw.choice(kinds)  # first the kind, so that the few files of one are not lost among many others
        name = draw.choice([path for path in chosen if _kind(path) == of_kind])
        damage = draw.choice(KINDS)
        path = directory / name
        data = path.read_bytes()
        if damage == "remove":
            path.unlink()
            return f"{name}: {damage}"
        changed = _changed(draw, damage, data, directory, name, older)
        if changed is not None and changed != data:
            path.write_bytes(changed)
            return f"{name}: {damage}"


def _kind(path: Path) -> str:
    return f"{path.parts[0]} {path.suffix}"


def _changed(
    draw: random.Random, damage: str, data: bytes, directory: Path, name: Path, older: Sequence[Path]
) -> bytes | None:
    """Return the damaged content; None where there can be no such damage."""
    if damage == "older":
        versions = [copy / name for copy in older if (copy / name).is_file()]
        return draw.choice(versions).read_bytes() if versions else None
    if damage == "other":
        alike = [
            copy / path
            for copy in (directory, *older)
            for path in files_of(copy)
            if path != name and _kind(path) == _kind(name)
        ]
        return draw.choice(alike).read_bytes() if alike else None
    if damage == "double":
        return data + data
    if not data:
        return None
    if damage == "flip":
        place = draw.randrange(len(data))
        return data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]
    if damage == "cut":
        return data[: draw.randrange(len(data))]
    lines = data.splitlines(keepends=True)
    place = draw.randrange(len(lines))
    if damage == "cut line":
        return b"".join(lines[:place])
    if damage == "double line":
        lines.insert(place, lines[place])
    elif damage == "drop line":
        del lines[place]
    else:
        other = draw.randrange(len(lines))
        lines[place], lines[other] = lines[other], lines[place]
    return b"".join(lines)
