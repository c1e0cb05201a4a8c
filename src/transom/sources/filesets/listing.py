"""Finding new files in stores of objects: listings, which cost requests and may show what is there with some delay.

A listing tells size and time of each object, so that nothing else is asked; a file that a listing does not show yet is
found by a later one. What a file was called counts, never where a listing stopped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Sequence

from transom.model.time import MICROS_PER_SECOND, Clock, Micros
from transom.sources.filesets.scan import Found, Pattern, expand_braces, has_magic, is_ignored
from transom.storage.objects import Stat
from transom.storage.places import ObjectPath, located
from transom.storage.several import each_of

logger = logging.getLogger(__name__)

PAUSE: Micros = MICROS_PER_SECOND
"""Between two looks at least, since each costs money."""
SHARE = 4
"""A pause is at least so many times as long as the look before it."""
_AT_ONCE = 16
"""Objects that are asked for at the same time."""


def parse_object_pattern(path: str) -> list[Pattern]:
    """Return the patterns for the URI of an object, a folder or a glob; asks the store whether it is an object."""
    where = located(path)
    assert isinstance(where, ObjectPath)
    if not has_magic(path):
        folder, file = Pattern(path, ("*",)), Pattern(str(where.parent), (where.name,), literal=True)
        if where.is_dir():
            return [folder]
        return [file] if where.exists() else [folder, file]  # whichever will be there
    patterns = []
    for one in expand_braces(path):
        scheme, _, rest = one.partition("://")
        store, *parts = rest.split("/")
        fixed = next((i for i, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
        patterns.append(Pattern("/".join([f"{scheme}://{store}", *parts[:fixed]]), tuple(parts[fixed:])))
    return patterns


class ObjectScanner:
    """Looks for objects that fit patterns and are not known; see `Scanner`, which does so on this machine.

    Args:
        patterns: What to look for; two patterns may overlap.
        clock: Its wall time should be that of the store, as far as files wait until they have settled.
    """

    def __init__(self, patterns: Sequence[Pattern], clock: Clock) -> None:
        self._patterns = tuple(patterns)
        self._clock = clock
        self._not_before: Micros = clock.monotonic()
        self._modified: dict[str, Micros] = {}
        """Of what the last look has seen."""
        self.looked = False
        """Whether the last poll listed anything, or was in a pause."""
        self.pending: set[str] = set()
        """Folders in which the last look saw objects that are too young to be taken."""

    def poll(self, known: Collection[str], young: Micros | None) -> list[Found]:
        """Return the matching objects that are not known, in no particular order.

        Args:
            known: Paths that were accepted before.
            young: Objects modified after this moment wait; None takes every object.

        Raises:
            OSError: A folder cannot be listed.
        """
        at = self._clock.monotonic()
        self.looked = at >= self._not_before
        if not self.looked:
            return []
        found: dict[str, Found] = {}
        pending, seen = set(), {}
        for pattern in self._patterns:
            for path, stat in _matching(pattern):
                modified = seen[path] = stat.st_mtime_ns // 1_000
                if path in known:
                    if self._modified.get(path, modified) != modified:
                        logger.warning("%s was written again; it was taken before and is not read again.", path)
                elif young is not None and modified > young:
                    pending.add(os.path.dirname(path))
                else:
                    found[path] = path, stat.st_size, modified
        self.pending, self._modified = pending, seen
        after = self._clock.monotonic()
        self._not_before = after + max(PAUSE, SHARE * (after - at))
        return list(found.values())

    def gone_of(self, paths: Sequence[str]) -> set[str]:
        """Return the objects that are no longer there: the last look did not show them, and the store denies them.

        None is said to be gone while the store does not answer.
        """
        unseen = [path for path in paths if path not in self._modified]
        try:
            return {path for path, there in zip(unseen, each_of(unseen, _is_there, _AT_ONCE), strict=True) if not there}
        except OSError as error:
            logger.warning("Which files are gone cannot be asked, so all are taken to be there: %s", error)
            return set()


def _is_there(path: str) -> bool:
    where = located(path)
    assert isinstance(where, ObjectPath)
    return where.objects.stat(where.key) is not None


def _matching(pattern: Pattern) -> Iterator[tuple[str, Stat]]:
    base = located(pattern.base)
    assert isinstance(base, ObjectPath)
    if "**" not in pattern.parts or pattern.literal:
        yield from _level(pattern, base, 0)
        return
    for entry in base.walk():
        names = entry.name.split("/")
        if entry.stat is not None and not any(map(is_ignored, names)) and _fits(pattern, 0, names):
            yield str(base / entry.name), entry.stat


def _level(pattern: Pattern, folder: ObjectPath, depth: int) -> Iterator[tuple[str, Stat]]:
    last = depth == len(pattern.parts) - 1
    if last and pattern.literal:
        path = folder / pattern.parts[depth]
        stat = path.objects.stat(path.key)
        if stat is not None:
            yield str(path), stat
        return
    for entry in folder.entries():
        if is_ignored(entry.name) or not pattern.matches(pattern.parts[depth], entry.name):
            continue
        if last and entry.stat is not None:
            yield str(folder / entry.name), entry.stat
        elif not last and entry.stat is None:
            yield from _level(pattern, folder / entry.name, depth + 1)


def _fits(pattern: Pattern, depth: int, names: Sequence[str]) -> bool:
    """Tell whether the parts from a depth on match names of folders and, at the end, of an object."""
    if depth == len(pattern.parts):
        return not names
    part = pattern.parts[depth]
    if part == "**":
        if depth == len(pattern.parts) - 1:
            return bool(names)
        return any(_fits(pattern, depth + 1, names[skipped:]) for skipped in range(len(names)))
    return bool(names) and pattern.matches(part, names[0]) and _fits(pattern, depth + 1, names[1:])
