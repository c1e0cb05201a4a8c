"""Where partials come from and what they hold, wherever they are; from which of them a store takes its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY
from transom.windows.aggregates.base import Primitive
from transom.windows.aggregates.former import current_key, is_known


def digest(text: str) -> str:
    """Return the name of a branch with this plan, while the checkpoint knows no other name for it."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def branch_of(definition: Mapping[str, Any]) -> str:
    """Return the name of the branch in a definition; those of older versions go by the plan."""
    return str(definition["branch"]) if "branch" in definition else digest(definition["rows"])


@dataclass(frozen=True)
class Origin:
    """The origin of partials; identifies them across restarts and changes of the job."""

    branch: str
    """Identity of the transformations."""
    keys: tuple[str, ...]
    """Texts of the grouping keys, sorted."""
    condition: str = ""
    """Text of the condition that the rows satisfy; a table can have several, and says so itself."""
    only: str = ""
    """As of a key set: those with whom it shares."""

    @property
    def name(self) -> str:
        """Return the origin as a file or table name."""
        rest = [self.condition, self.only] if self.condition or self.only else []
        return json.dumps([[self.branch, *self.keys], *rest] if rest else [self.branch, *self.keys])

    def serves(self, other: Origin) -> bool:
        """Tell whether partials of the other origin can be derived from those of this one."""
        return (
            self.branch == other.branch
            and self.condition == other.condition
            and set(other.keys) <= set(self.keys)
            and other.only in ("", self.only)
        )


@dataclass(frozen=True)
class TableNote:
    """The description of a table of partials."""

    origin: Origin
    primitives: tuple[Primitive, ...]
    conditions: tuple[str, ...] = ("",)
    """Texts of the conditions that TAG counts; one if there is no TAG."""
    made_for: tuple[Origin, ...] = ()
    """Origins of the stores that it was made for; others may use it, too, if it holds panes."""
    absent: tuple[Primitive, ...] = ()
    """Primitives whose states are not in it because they are neutral, or elsewhere."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, with lasting names."""
        return {
            "branch": self.origin.branch,
            "keys": self.origin.keys,
            "only": self.origin.only,
            "conditions": self.conditions,
            "for": [origin.name for origin in self.made_for],
            "primitives": [primitive.key for primitive in self.primitives],
            "absent": [primitive.key for primitive in self.absent],
        }


@dataclass(frozen=True)
class Contents:
    """The description of partials, wherever they are."""

    origin: Origin
    primitives: tuple[str, ...]
    """Lasting names."""
    conditions: tuple[str, ...] = ("",)
    """Texts of the conditions that TAG counts; one if there is no TAG."""
    made_for: frozenset[str] = frozenset()
    """Names of the origins of the stores that they were made for."""
    direct: bool = False
    """Whether they are windows instead of panes."""
    absent: frozenset[str] | None = frozenset()
    """Keys of primitives that are known not to be in them; None where that was not noted."""

    @classmethod
    def of(cls, note: Mapping[str, Any], direct: bool) -> Contents:
        """Read what `TableNote.to_json` wrote.

        Raises:
            CheckpointCorruptError: They hold states of which this version does not know what they are.
        """
        names = tuple(map(current_key, note["primitives"]))
        for name in names:
            if not is_known(name):
                raise CheckpointCorruptError(
                    f"The checkpoint holds states of a kind that this version of Transom does not know: {name!r}.",
                    "Use the version of Transom that wrote it.",
                )
        absent = frozenset(note["absent"]) if "absent" in note else None
        origin = Origin(note["branch"], tuple(note["keys"]), only=note.get("only", ""))
        conditions = tuple(note.get("conditions", [""]))
        return cls(origin, names, conditions, frozenset(note.get("for", ())), direct, absent)

    def require(self, origin: Origin, wanted: Iterable[str]) -> None:
        """Check that they hold all that a store has, or say why not.

        Args:
            origin: The store's origin, for the message.
            wanted: Keys of its primitives.

        Raises:
            CheckpointCorruptError: States are missing.
        """
        if missing := set(wanted) - (self.absent or frozenset()).union(self.primitives):
            raise lacking(origin, missing)

    def serves(self, origin: Origin) -> bool:
        """Tell whether partials of the other origin can be derived from these.

        They are of all rows of a cut that satisfy the conditions, so that the partials of one query serve
        queries that share, too. Windows are only those that somebody asked for.
        """
        if self.direct and origin.name not in self.made_for:
            return False
        return origin.condition in self.conditions and replace(self.origin, condition=origin.condition).serves(origin)


def lacking(origin: Origin, names: Iterable[str]) -> CheckpointCorruptError:
    """Return the error for states that should be in a checkpoint."""
    return CheckpointCorruptError(
        f"The checkpoint has no states {', '.join(sorted(names))} of {origin.name}.", CORRUPT_REMEDY
    )


class HasContents(Protocol):
    """Partials, wherever they are."""

    @property
    def contents(self) -> Contents:
        """Their description."""


P = TypeVar("P", bound=HasContents)


def taken_from(
    origin: Origin, names: Mapping[Primitive, str], tables: Sequence[P]
) -> list[tuple[P, dict[Primitive, str]]]:
    """Return the tables from which a store takes a cut's partials, each with the primitives that it takes there.

    Each primitive is taken from one table: that which was made for the store, else as few as possible, then those with
    the fewest keys.

    Args:
        origin: The store's origin.
        names: Lasting names of its primitives.
        tables: All tables of the cut.

    Raises:
        CheckpointCorruptError: There are partials for the store, but not of all primitives.
    """
    able = [table for table in tables if table.contents.serves(origin)]
    missing = dict(names)
    found = []
    while missing and able:
        wanted = set(missing.values())
        best = max(
            able,
            key=lambda table: (
                origin.name in table.contents.made_for,
                len(wanted.intersection(table.contents.primitives)),
                -len(table.contents.origin.keys),
            ),
        )
        taken = {primitive: name for primitive, name in missing.items() if name in best.contents.primitives}
        if not taken:
            break
        found.append((best, taken))
        missing = {primitive: name for primitive, name in missing.items() if primitive not in taken}
        able.remove(best)
    if missing and any(table.contents.serves(origin) for table in tables):
        raise lacking(origin, missing.values())
    return found
