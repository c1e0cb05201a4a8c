"""Kinds of sources and sinks that a job file may name: Transom's own, and those that installed packages bring.

A package brings a kind by an entry point of the group `transom.sources` or `transom.sinks`: its name is the key in the
job file, and it is a function that returns a source or a sink. The value of the key is its first argument; the other
keys are its other parameters.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, Literal, TypeAlias

from transom.errors import DefinitionError
from transom.jobs.keys import Keys, Moment, Table, standing_in

Types: TypeAlias = "type | tuple[type, ...]"
ANY: Types = (str, int, float, bool, list, dict, Moment)

SOURCES: Mapping[str, Types] = {
    "files": (str, list),
    "text": (str, list),
    "delta": str,
    "kafka": (str, list),
    "generator": dict,
}
"""Transom's own sources, with the types of their first argument."""
SINKS: Mapping[str, Types] = {
    "parquet": str,
    "json": str,
    "csv": str,
    "sqlite": str,
    "postgres": str,
    "delta": str,
    "kafka": (str, list),
    "console": int,
}
"""Transom's own sinks, with the types of their first argument."""
_IN_TOML: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "Literal": (str,),
    "Sequence": (str, list),
    "Mapping": (dict,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "Duration": (str, int),
    "Micros": (int, Moment),
    "Starting": (str, int, dict, Moment),
    **dict.fromkeys(("None", "os", "PathLike", "StructType", "Format"), ()),
}
"""What TOML has of the types of parameters, by words of their annotations."""
_PYTHON_ONLY = frozenset({"stream", "storage_options"})
"""Parameters for which TOML has no values, or that hold secrets."""


@dataclass(frozen=True)
class Kind:
    """A kind of source or sink, and what makes it."""

    name: str
    group: Literal["sources", "sinks"]
    takes: Types = ANY

    @cached_property
    def make(self) -> Callable[..., Any]:
        """The function that makes one.

        Raises:
            DefinitionError: The package that brings it cannot be imported, or it is no function.
        """
        if self.is_own:
            import transom as tm

            found = getattr(tm.sources if self.group == "sources" else tm.sinks, self.name)
        else:
            point = entry_points(group=f"transom.{self.group}")[self.name]
            try:
                found = point.load()
            except Exception as error:  # whatever the package does when it is imported
                raise DefinitionError(
                    f"{self.name}: the package that brings it cannot be loaded ({point.value}): "
                    f"{type(error).__name__}: {error}.",
                    "Repair or reinstall it.",
                ) from error
        if not callable(found):
            raise DefinitionError(f"{self.name}: what its package brings is no function.", "Repair its entry point.")
        return found  # type: ignore[no-any-return]

    @property
    def is_own(self) -> bool:
        """Whether it is one of Transom's."""
        return self.name in (SOURCES if self.group == "sources" else SINKS)

    def given(self, keys: Keys) -> dict[str, Any]:
        """Return the options that a table has, dates and times as ISO 8601 text.

        Raises:
            JobFileError: One is of a type that it cannot be.
        """
        return {name: self._checked(keys, name, self.types_of(name)) for name in self.options if name in keys.table}

    def argument(self, keys: Keys) -> Any:
        """Return the value of its own key; raises as `given` does."""
        return self._checked(keys, self.name, self.takes)

    def types_of(self, option: str) -> Types:
        """Return the types that an option may have."""
        if not self.is_own:
            return ANY
        annotation = str(self._parameters[option].annotation)
        while (outer := re.sub(r"\[[^\[\]]*\]", "", annotation)) != annotation:
            annotation = outer
        words = (kind for word in re.findall(r"\w+", annotation) for kind in _IN_TOML[word])
        return tuple(dict.fromkeys(words))

    def _checked(self, keys: Keys, name: str, types: Types) -> Any:
        value = keys.need(name, types)
        if self.is_own and isinstance(value, list):
            return list(keys.texts(name))
        if self.is_own and isinstance(value, dict):
            for where, moment in _moments(value, name):
                raise keys.error(f"{where} = {moment} is a date or a time", f'Write it as a text: "{moment}".')
        return _as_text(value)

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        parameters = list(inspect.signature(self.make).parameters.values())[1:]
        return {each.name: each for each in parameters if each.kind in named and each.name not in _PYTHON_ONLY}

    @property
    def options(self) -> tuple[str, ...]:
        """The keys that may be given beside its own."""
        return tuple(self._parameters)

    @property
    def required(self) -> tuple[str, ...]:
        """Those of them that must be."""
        return tuple(name for name, each in self._parameters.items() if each.default is inspect.Parameter.empty)


def kinds(group: Literal["sources", "sinks"]) -> dict[str, Kind]:
    """Return the kinds that a job may name; a package cannot take the name of one of Transom's own."""
    own = SOURCES if group == "sources" else SINKS
    brought = {point.name: Kind(point.name, group) for point in entry_points(group=f"transom.{group}")}
    return {**brought, **{name: Kind(name, group, takes) for name, takes in own.items()}}


@dataclass(frozen=True)
class SinkSpec:
    """One sink of a query."""

    kind: str
    argument: Any
    options: Table

    def make(self) -> Any:
        """Return the sink.

        Raises:
            DefinitionError: An argument cannot work.
        """
        return kinds("sinks")[self.kind].make(self.argument, **self.options)


def parse_sinks(keys: Keys) -> tuple[SinkSpec, ...]:
    """Return the sinks of a query, which has one in `sink`, or several in `sinks`.

    Raises:
        JobFileError: A kind is unknown, or an argument is missing or has a wrong type.
    """
    if "sink" in keys.table and "sinks" in keys.table:
        raise keys.error("it has both sink and sinks", "Write all in sinks.")
    one = keys.table.get("sink")
    return tuple(_sink(keys, sink) for sink in (keys.get("sinks", list, []) if one is None else [one]))


def _sink(keys: Keys, sink: Any) -> SinkSpec:
    known, where = kinds("sinks"), f"{keys.where} sink"
    if not isinstance(sink, dict):
        raise keys.error(f"the sink {sink!r} is not a table", 'Write for example sink = {parquet = "out"}.')
    named = [name for name in sink if name in known]
    if not named:
        Keys(keys.file, where, sink, tuple(known))
    if len(named) != 1:
        raise keys.error("sink: one kind with its argument is needed", 'Write for example sink = {parquet = "out"}.')
    kind = known[named[0]]
    with standing_in(keys.file, where):
        options = kind.options
    mine = Keys(keys.file, where, sink, (kind.name, *options))
    for name in kind.required:
        mine.need(name, ANY)
    return SinkSpec(kind.name, kind.argument(mine), kind.given(mine))


def _moments(value: Any, where: str) -> Iterator[tuple[str, Moment]]:
    """Yield the dates and times in a value, each with the keys that lead to it."""
    if isinstance(value, Moment):
        yield where, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _moments(each, f"{where}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from _moments(each, where)


def _as_text(value: Any) -> Any:
    """Return a value with the texts of the dates and times in it."""
    if isinstance(value, dict):
        return {key: _as_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_as_text, value))
    return str(value) if isinstance(value, Moment) else value
