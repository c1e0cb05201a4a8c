"""TOPOLOGY.toml: the sites that run a job together, the same file at all of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from transom.errors import JobFileError
from transom.jobs.keys import Keys, Table, read_table, standing_in
from transom.model.time import MICROS_PER_SECOND, parse_duration
from transom.sites.region import Region, SiteEntry
from transom.widearea.topology import INTERVALS, Link

_TOP = ("tick", "default", "destinations", "site", "link", "least_interval", "most_interval", "objective")
_SITE = ("name", "address", "sources", "offset")
_LINK = ("from", "to", "between", "bandwidth")
_OBJECTIVES = ("latency", "frequencies", "goodput", "proportional", "max_min")
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kMG]?)(bit|B)/s\s*")
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


def read_toml(path: Path, what: str) -> Table:
    """Return what is in a TOML file.

    Raises:
        JobFileError: It cannot be read, or is not TOML.
    """
    try:
        return read_table(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise JobFileError(f"The {what} {path} cannot be read: {error}.", "Give the path of a TOML file.") from error
    except tomllib.TOMLDecodeError as error:
        raise JobFileError(f"{path} is not valid TOML: {error}.", "See https://toml.io for the syntax.") from error


def parse_rate(text: str) -> float:
    """Return bytes per second.

    >>> parse_rate("2 Mbit/s"), parse_rate("100 kB/s")
    (250000.0, 100000.0)

    Raises:
        ValueError: It is no bandwidth.
    """
    if (match := _RATE.fullmatch(text)) is None:
        raise ValueError(text)
    rate = float(match[1]) * _UNITS[match[2]]
    return rate if match[3] == "B" else rate / 8


def load_region(path: Path) -> Region:
    """Read the sites and their links.

    Raises:
        JobFileError: The file cannot be read, or something in it cannot be.
    """
    file, table = str(path), read_toml(path, "topology")
    top = Keys(file, "", table, _TOP)
    sites = tuple(_site(file, each) for each in top.tables("site"))
    links: dict[Link, float] = {}
    for each in top.tables("link") if "link" in table else ():
        links.update(_link(file, each))
    destinations = top.get("destinations", dict, {})
    named = Keys(file, "[destinations]", destinations, tuple(destinations))
    tick = top.get("tick", str, "1 second")
    objective = top.get("objective", str, _OBJECTIVES[0])
    if objective not in _OBJECTIVES:
        raise top.error(f"objective = {objective!r} is not known", f"Use one of {', '.join(_OBJECTIVES)}.")
    with standing_in(file, "the topology"):
        length = parse_duration(tick, "tick")
        if not 1_000 <= length <= 60 * MICROS_PER_SECOND:
            raise top.error(f"tick = {tick!r} is not possible", "Write 1 ms to 60 seconds.")
        return Region(
            sites,
            top.get("default", str, sites[0].name) if len(sites) == 1 else top.need("default", str),
            {query: named.need(query, str) for query in destinations},
            links,
            length,
            _ticks(top, "least_interval", length, 1),
            _ticks(top, "most_interval", length, INTERVALS[-1]),
            objective,
        )


def _ticks(top: Keys, key: str, tick: int, default: int) -> int:
    """Return how many ticks an interval has."""
    text = top.get(key, str)
    if text is None:
        return default
    number, rest = divmod(parse_duration(text, key), tick)
    if rest or number not in INTERVALS:
        raise top.error(f"{key} = {text!r} is no interval", f"Write so many ticks: {', '.join(map(str, INTERVALS))}.")
    return number


def _site(file: str, table: Table) -> SiteEntry:
    where = f"[[site]] {table['name']!r}" if "name" in table else "[[site]]"
    keys = Keys(file, where, table, _SITE)
    with standing_in(file, where):
        offset = parse_duration(keys.get("offset", str, "0 ms"), "offset")
    return SiteEntry(keys.need("name", str), keys.get("address", str, ""), keys.texts("sources"), offset)


def _link(file: str, table: Table) -> dict[Link, float]:
    keys = Keys(file, "[[link]]", table, _LINK)
    if ("between" in table) == ("from" in table or "to" in table):
        raise keys.error("it needs either between, or from and to", 'Write for example between = ["north", "south"].')
    text = keys.need("bandwidth", str)
    try:
        rate = parse_rate(text)
    except ValueError:
        raise keys.error(f"bandwidth = {text!r} is no bandwidth", 'Write for example bandwidth = "2 Mbit/s".') from None
    if "between" in table:
        ends = keys.texts("between")
        if len(ends) != 2:
            raise keys.error(f"between = {list(ends)} does not name two sites", "Name two.")
        return {(ends[0], ends[1]): rate, (ends[1], ends[0]): rate}
    return {(keys.need("from", str), keys.need("to", str)): rate}
