"""Functions of texts, as Spark computes them. A function returns None for a term that only Spark computes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native.computing import Computation, Function, Reached, Value, constant_text
from transom.native.terms import Term

_MATCHES: dict[str, Callable[[Value, str], Value]] = {
    "StartsWith": lambda text, part: pc.starts_with(text, part),
    "EndsWith": lambda text, part: pc.ends_with(text, part),
    "Contains": lambda text, part: pc.match_substring(text, part),
}


def match(of: Computation, term: Term, reached: Reached) -> Value:
    """Return whether a text begins with, ends with or has another one."""
    text, part = term.children
    wanted = constant_text(part)
    return None if wanted is None else _MATCHES[term.kind](of.value(text, reached), wanted)


def like(of: Computation, term: Term, reached: Reached) -> Value:
    """Return whether a text is like a pattern without an escaped character."""
    text, pattern = term.children
    wanted = constant_text(pattern)
    if wanted is None or term.value in wanted or "\\" in wanted:
        return None
    return pc.match_like(of.value(text, reached), wanted)


def length(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the number of characters."""
    (child,) = term.children
    return pc.utf8_length(of.value(child, reached)) if kinds.is_string(child.type) else None


FUNCTIONS: dict[str, Function] = {**dict.fromkeys(_MATCHES, match), "Like": like, "Length": length}
