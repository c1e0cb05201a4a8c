"""The kinds of joins, by the names that `DataFrame.join` of PySpark has for them."""

from __future__ import annotations

from collections.abc import Sequence

from transom.errors import DefinitionError

INNER, LEFT, RIGHT, FULL, SEMI, ANTI, CROSS = "inner", "left", "right", "full", "left_semi", "left_anti", "cross"
_NAMES = {
    "inner": INNER,
    **dict.fromkeys(("left", "leftouter"), LEFT),
    **dict.fromkeys(("right", "rightouter"), RIGHT),
    **dict.fromkeys(("full", "outer", "fullouter"), FULL),
    **dict.fromkeys(("semi", "leftsemi"), SEMI),
    **dict.fromkeys(("anti", "leftanti"), ANTI),
    "cross": CROSS,
}
"""Without underscores and in lower case, as Spark compares them."""


def join_kind(how: object, possible: Sequence[str], what: str = "join") -> str:
    """Return the kind of a join, by one name of its several.

    >>> join_kind("leftouter", (INNER, LEFT)), join_kind("LEFT_OUTER", (INNER, LEFT))
    ('left', 'left')

    Args:
        how: What the user wrote.
        possible: The kinds that can be had here.
        what: What has a kind, for the error.

    Raises:
        DefinitionError: It is no kind of PySpark's, or none that can be had here.
    """
    kind = _NAMES.get(how.lower().replace("_", "")) if isinstance(how, str) else None
    if kind is not None and kind in possible:
        return kind
    why = "is unknown" if kind is None else "cannot be had here"
    names = [f'"{name}"' for name in possible]
    raise DefinitionError(f"{what}: how={how!r} {why}.", f"Give {', '.join(names[:-1])} or {names[-1]}.")
