"""Access to the tables of a TOML job that turns every mistake into an error which names the key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, time
from typing import Any, TypeAlias

from transom.errors import DefinitionError, JobFileError, did_you_mean

Table: TypeAlias = "Mapping[str, Any]"
"""A table of the file, as `read_table` reads it."""


@dataclass(frozen=True, repr=False)
class Moment:
    """A date or a time, which TOML has without quotation marks; in messages it stands as in the file."""

    value: date | time

    def __str__(self) -> str:
        return self.value.isoformat()

    __repr__ = __str__


def read_table(text: str) -> dict[str, Any]:
    """Return what TOML says, its dates and times as `Moment`.

    >>> read_table("start = 2026-01-01")
    {'start': 2026-01-01}

    Raises:
        TOMLDecodeError: It is not TOML.
    """
    return {key: _marked(value) for key, value in tomllib.loads(text).items()}


def _marked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _marked(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_marked, value))
    return Moment(value) if isinstance(value, date | time) else value


_NAMES = {
    str: "a text",
    list: "a list",
    dict: "a table",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Moment: "a date or a time",
}


_PASSWORD = re.compile(r"(://[^/\s]*:)[^/\s]*(@)|(password\s*=\s*)('[^']*'|[^\s'\"&]+)", re.IGNORECASE)


def without_passwords(text: str) -> str:
    """Return a text in which the passwords of addresses and connection strings cannot be read.

    >>> without_passwords("postgresql://me:secret@host/db, host=x password=secret")
    'postgresql://me:***@host/db, host=x password=***'
    """
    return _PASSWORD.sub(lambda found: f"{found[1] or found[3]}***{found[2] or ''}", text)


class Keys:
    """One table of the file.

    Args:
        file: Name of the file, for errors.
        where: The table as a person finds it, e.g. `[source]`; empty for the top of the file.
        table: What is in it.
        known: The keys that may be there.

    Raises:
        JobFileError: A key is unknown.
    """

    def __init__(self, file: str, where: str, table: Table, known: Sequence[str]) -> None:
        self.file, self.where, self.table = file, where, table
        for key in table:
            if key not in known:
                remedy = did_you_mean(key, known, f"Known keys: {', '.join(dict.fromkeys(known))}.")
                raise self.error(f"unknown key {key!r}", remedy)

    def error(self, what: str, remedy: str) -> JobFileError:
        """Return the error that says where and what."""
        where = f"{self.file}: {self.where + ': ' if self.where else ''}"
        return JobFileError(f"{where}{without_passwords(what)}.", without_passwords(remedy))

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """Return the value of an optional key, checked for its type."""
        value = self.table.get(key, default)
        some = kind if isinstance(kind, tuple) else (kind,)
        if key in self.table and (not isinstance(value, some) or (isinstance(value, bool) and bool not in some)):
            names = " or ".join(_NAMES[one] for one in some)
            remedy = f"Write {key} as {names}."
            if kind is list and value:
                remedy = f'Write {key} = ["{value}"].'
            elif isinstance(value, Moment) and str in some:
                remedy = f'Write {key} = "{value}", or what else it is, as a text.'
            raise self.error(f"{key} = {value!r} is not {names}", remedy)
        if key in self.table and value == "":
            raise self.error(f"{key} is empty", "Write a text.")
        return value

    def need(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """Return the value of a key that must be there."""
        if key not in self.table:
            raise self.error(f"the key {key!r} is missing", "Add it.")
        return self.get(key, kind)

    def texts(self, key: str, needed: bool = False) -> tuple[str, ...]:
        """Return a list of texts; empty when the key is optional and missing."""
        values = self.need(key, list) if needed else self.get(key, list, [])
        if not all(isinstance(value, str) for value in values) or (needed and not values):
            example = "count(*) as rows" if key == "aggregates" else "zone"
            raise self.error(f"{key} = {values!r} is not a list of texts", f'Write for example {key} = ["{example}"].')
        return tuple(values)

    def tables(self, key: str) -> list[Table]:
        """Return the tables of `[key]` or `[[key]]`; there must be one."""
        value = self.table.get(key)
        tables = [value] if isinstance(value, dict) else value
        if not isinstance(tables, list) or not tables or not all(isinstance(one, dict) for one in tables):
            raise self.error(f"there is no [{key}] table", "Add one; docs/guide/toml.md shows an example of a job.")
        return tables


def named_table(file: str, kind: str, table: Table, known: Sequence[str]) -> Keys:
    """Return one of the tables `[[kind]]`, which people find by its name; see `Keys`."""
    name = table.get("name")
    return Keys(file, f"[[{kind}]] {name!r}" if name else f"[[{kind}]]", table, known)


@contextmanager
def standing_in(file: str, where: str) -> Iterator[None]:
    """Let the error of a definition say where in the file it stands.

    Args:
        file: Name of the file.
        where: The table.

    Raises:
        JobFileError: In place of another `DefinitionError`.
    """
    try:
        yield
    except JobFileError:
        raise
    except DefinitionError as error:
        raise JobFileError(f"{file}: {where}: {error.message}", error.remedy) from error
