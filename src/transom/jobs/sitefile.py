"""SITE.toml: one site, its checkpoint, how others reach it, and where its rows are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transom.errors import JobFileError
from transom.jobs.jobfile import JobSpec
from transom.jobs.keys import Keys, Table, standing_in
from transom.jobs.kinds import ANY, kinds
from transom.jobs.regionfile import load_region, read_toml
from transom.sites.coordinating import Asking
from transom.sites.flight import FlightMail
from transom.sites.mail import Listener
from transom.sites.region import Region
from transom.sites.relaying import only_relays
from transom.sites.secured import Identity
from transom.widearea.hellos import Hello

_KEYS = (
    *("name", "job", "topology", "checkpoint", "sources", "outbox_bytes", "inbox_bytes"),
    *("listen", "certificate", "key", "authority", "insecure", "coordinator"),
)


@dataclass(frozen=True)
class SiteFile:
    """A whole file."""

    file: str
    name: str
    job: Path
    """Empty where none is needed: at a site that only passes on what others send."""
    region: Region
    checkpoint: str
    sources: dict[str, Table] = field(default_factory=dict)
    """Kind and options of the sources, by stream."""
    limits: dict[str, int] = field(default_factory=dict)
    """Bounds in bytes that are given."""
    listen: str = ""
    """Host and port at which it takes connections; else its address in the topology."""
    secrets: tuple[Path, Path, Path] | None = None
    """Files with its certificate, its key, and the certificate of the authority."""
    insecure: bool = False
    """Whether it does without TLS, on this machine."""
    coordinator: str = ""
    """Host and port of the coordinator; empty for none."""

    @property
    def relays(self) -> bool:
        """Whether it only passes on what others send."""
        return only_relays(self.region, self.name)

    def mail(self, hello: Hello, listener: Listener | None = None) -> FlightMail:
        """Return the way to the other sites, which run in other processes.

        Args:
            hello: What the site says of itself.
            listener: See `FlightMail`.

        Raises:
            JobFileError: Something is missing for that.
        """
        addresses = {entry.name: entry.address for entry in self.region.sites if entry.name != self.name}
        unknown = [name for name, address in addresses.items() if not address]
        listen = self.listen or self.region.entry(self.name).address
        if unknown or not listen:
            raise JobFileError(
                f"{self.file}: {', '.join(unknown or [self.name])} has no address in the topology.",
                'Write address = "HOST:PORT" at each [[site]]; or run all sites in one process: transom site A B C.',
            )
        with standing_in(self.file, "addresses"):
            return FlightMail(hello, listen, addresses, self.identity(), listener)

    def asking(self) -> Asking | None:
        """Return the way to the coordinator; None if there is none.

        Raises:
            JobFileError: Something is missing for that.
        """
        if not self.coordinator:
            return None
        with standing_in(self.file, "coordinator"):
            return Asking(self.name, self.coordinator, "coordinator", self.identity())

    def identity(self) -> Identity | None:
        """Return the certificate of the site; None if it does without.

        Raises:
            JobFileError: There is none, or it cannot be read.
        """
        if (self.secrets is None) != self.insecure:
            raise JobFileError(
                f"{self.file}: connections between sites need certificates"
                + (", and insecure = true does without." if self.insecure else "."),
                "Write certificate, key and authority, paths of PEM files; or insecure = true on one machine.",
            )
        with standing_in(self.file, "certificate, key and authority"):
            return None if self.secrets is None else Identity.read(*self.secrets)


def load_site(path: Path) -> SiteFile:
    """Read a site's file, and the topology that it names.

    Raises:
        JobFileError: A file cannot be read, or something in it cannot be.
    """
    table, file = read_toml(path, "site file"), str(path)
    keys = Keys(file, "", table, _KEYS)
    name = keys.need("name", str)
    region = load_region(Path(keys.need("topology", str)))
    with standing_in(file, "name"):
        entry = region.entry(name)
    sources = keys.get("sources", dict, {})
    for stream in sources:
        if stream not in entry.sources:
            raise keys.error(
                f"[sources.{stream}] is given, and the topology does not say that {name!r} has rows of it",
                f'Write sources = ["{stream}"] at the site in the topology.',
            )
    limits = {key: keys.get(key, int) for key in ("outbox_bytes", "inbox_bytes") if key in table}
    for key, value in limits.items():
        if value < 1:
            raise keys.error(f"{key} = {value} is not positive", "Write a number of bytes.")
    return SiteFile(
        file,
        name,
        Path(keys.get("job", str, "") if only_relays(region, name) else keys.need("job", str)),
        region,
        keys.need("checkpoint", str),
        dict(sources),
        limits,
        keys.get("listen", str, ""),
        _secrets(keys, table),
        keys.get("insecure", bool, False),
        keys.get("coordinator", str, ""),
    )


def _secrets(keys: Keys, table: Table) -> tuple[Path, Path, Path] | None:
    names = ("certificate", "key", "authority")
    given = [name for name in names if name in table]
    if given and len(given) < len(names):
        missing = " and ".join(name for name in names if name not in given)
        raise keys.error(f"{missing} is missing", "Write certificate, key and authority, paths of PEM files.")
    certificate, key, authority = (Path(keys.get(name, str, "")) for name in names)
    return (certificate, key, authority) if given else None


def local_sources(site: SiteFile, job: JobSpec | None) -> dict[str, Any]:
    """Return the sources of a site that are elsewhere than its job says, by stream.

    Args:
        site: The site.
        job: The job, if it is TOML: what a source does not say is as there, such as its schema.

    Raises:
        JobFileError: A source cannot be.
    """
    known = kinds("sources")
    theirs = {} if job is None else {spec.name: spec for spec in job.sources}
    made = {}
    for stream, table in site.sources.items():
        where = f"[sources.{stream}]"
        named = [name for name in table if name in known]
        options = {key for name in named for key in known[name].options}
        keys = Keys(site.file, where, table, (*known, *options))
        if len(named) != 1:
            raise keys.error(f"it needs one of {', '.join(known)}", 'Write for example files = "trips/*.json".')
        kind, spec = known[named[0]], theirs.get(stream)
        inherited = dict(spec.options) if spec is not None and spec.kind == kind.name else {}
        given = kind.given(keys)
        for key in kind.required:
            if key not in inherited:
                keys.need(key, ANY)
        with standing_in(site.file, where):
            made[stream] = kind.make(kind.argument(keys), **{**inherited, **given})
    return made
