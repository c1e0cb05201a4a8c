"""The names of states in checkpoints of format 1: frozen, whatever becomes of the classes named here."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from transom.windows.aggregates.base import state_key

_EXPRESSION = re.compile(
    r"Expression\(text=(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"), column=(?:None|Column<'.*?'>)\)", re.DOTALL
)
_FUNCTION = re.compile(r"<(?:bound method|function|class) '?(?:[\w.<>]+\.)?(\w+|<lambda>)'?[^>]*>")
_KINDS: dict[str, str] = {
    "Count": "count.1",
    "Sum": "sum.1",
    "MeanSum": "mean.1",
    "Moments": "moments.1",
    "Extreme": "extreme.1",
    "Edge": "edge.1",
    "Smallest": "smallest.1",
    "Hll": "hll.1",
    "Kll": "kll.1",
    "FrequentItems": "frequent.1",
    "TimeRange": "times.1",
    "UserStates": "user.1",
}
WHERE = "where.1"
"""States of another kind, of some of the rows."""
_NEWER = ("best.1", "bits.1", "first.1", "heavy.1", "moments4.1", "pairs.1")
"""Kinds that format 1 had not."""


def current_key(name: str) -> str:
    """Return what states are called that have a name in a checkpoint: the same, unless that is of format 1.

    A name that cannot be read is returned as it is, so that it matches nothing.

    >>> current_key("Sum(x=Expression(text='fare', column=None))")
    '["sum.1", "fare"]'
    """
    kind = _KINDS.get(name.partition("(")[0])
    if name.startswith("[") or kind is None:
        return name
    try:
        return state_key(kind, *_details(kind, _values(name)))
    except (ValueError, SyntaxError, LookupError):
        return name


def is_known(key: str) -> bool:
    """Tell whether states of this name are of a kind that there is.

    >>> is_known('["sum.1", "fare"]'), is_known('["sum.2", "fare"]')
    (True, False)
    >>> is_known(state_key("where.1", "a > 5", '["sum.1", "fare"]'))
    True
    """
    if key.startswith(f'["{WHERE}", '):
        return is_known(json.loads(key)[2])
    kinds = (*_KINDS.values(), *_NEWER)
    return any(key == f'["{kind}"]' or key.startswith(f'["{kind}", ') for kind in kinds)


def _values(name: str) -> dict[str, Any]:
    """Return the arguments in the text of a call; expressions as their texts, functions as their names."""
    text = _EXPRESSION.sub(lambda match: match["text"], name)
    text = _FUNCTION.sub(lambda match: repr(match[1]), text)
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call):
        raise ValueError(name)
    return {argument.arg or "": ast.literal_eval(argument.value) for argument in call.keywords}


def _details(kind: str, values: dict[str, Any]) -> list[object]:
    x = values.get("x")
    match kind:
        case "count.1":
            return [] if x is None else [x]
        case "times.1":
            return []
        case "extreme.1":
            return [values["function"], x]
        case "edge.1":
            return ["last" if values["last"] else "first", x]
        case "smallest.1":
            return [values["limit"], values["unique"], x]
        case "hll.1":
            return [12, x]
        case "kll.1":
            return [values["k"], x]
        case "frequent.1":
            return [values["max_items"], x]
        case "user.1":
            return [values["partial"], values["state"], *([name, text] for name, text in values["fields"])]
        case _:
            return [x]
