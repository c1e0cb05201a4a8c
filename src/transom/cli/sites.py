"""`transom site`: running a site of an application that several sites run together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from transom import __version__
from transom.cli.choice import SparkChoice
from transom.cli.loading import load, reads_kafka
from transom.cli.relaying import run_relay
from transom.cli.running import run_shown
from transom.engine.loop.interrupts import interrupts
from transom.engine.loop.progress import Progress
from transom.engine.spark.session import is_ansi
from transom.engine.streams.sending import query_of
from transom.errors import JobFileError
from transom.jobs.jobfile import load_job
from transom.jobs.sitefile import SiteFile, load_site, local_sources
from transom.sites.coordinating import Asking
from transom.sites.here import LocalSite
from transom.sites.inprocess import Hall
from transom.sites.mail import Mail
from transom.widearea.hellos import Hello

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from transom.api.app import App


def run_sites(
    files: Sequence[Path], *, once: bool, close_all: bool, accept_loss: bool, spark: SparkChoice, as_json: bool
) -> None:
    """Run one site, or several in one process, until they end or are interrupted.

    Raises:
        TransomError: A site cannot be loaded or run, or one of its queries failed.
    """
    sites = [load_site(path) for path in files]
    if relay := next((site for site in sites if site.relays), None):
        run_relay(relay, sites, once, as_json)
        return
    builds = builds_of(sites, accept_loss)
    spark = spark.with_kafka() if any(reads_kafka(site.job) for site in sites) else spark

    def together(session: SparkSession, update: Callable[[Progress], None]) -> Progress:
        return Together({name: build(session) for name, build in builds.items()}, update).run(once, close_all)

    remedy = "Correct it, and run all sites again with new checkpoints."
    run_shown(f"transom {' '.join(builds)}", spark, as_json, together, remedy)


def builds_of(sites: Sequence[SiteFile], accept_loss: bool = False) -> dict[str, Callable[[SparkSession], App]]:
    """Return what builds the application of each site.

    Raises:
        TransomError: One cannot be built, as far as that is known without Spark.
    """
    mails = _mails(sites)
    return {site.name: _build(site, mails[site.name], accept_loss) for site in sites}


def _build(site: SiteFile, mail: Callable[[], Mail], accept_loss: bool) -> Callable[[SparkSession], App]:
    """Return what builds the application of a site; what needs no Spark is checked before."""
    job = load_job(site.job) if site.job.suffix == ".toml" else None
    asking = site.asking  # read again for each run
    coordinator = cast("Callable[[], Asking]", asking) if asking() is not None else None
    options: dict[str, Any] = {**site.limits, "accept_loss": accept_loss, "coordinator": coordinator}
    here = LocalSite(site.name, site.region, mail, local_sources(site, job), **options)
    build = load(site.job, Path(site.checkpoint), site=here)

    def built(session: SparkSession) -> App:
        if isinstance(mail, _Way):
            mail.session = session
        return build(session)

    return built


def _mails(sites: Sequence[SiteFile]) -> Mapping[str, Callable[[], Mail]]:
    """Return what makes the way from each site to the others.

    Raises:
        JobFileError: Two sites cannot be run together, or a site cannot be reached from others.
    """
    names = [site.name for site in sites]
    first = sites[0]
    for site in sites[1:]:
        if site.region != first.region:
            raise JobFileError(
                f"{first.file} and {site.file} name different topologies.", "Sites of one job have one topology."
            )
    for name in names:
        if names.count(name) > 1:
            raise JobFileError(f"Two files are of the site {name!r}.", "Give each site once.")
    if {entry.name for entry in first.region.sites} == set(names):
        hall = Hall()
        return {name: lambda name=name: hall.desk(name) for name in names}  # type: ignore[misc]
    ways = {site.name: _Way(site) for site in sites}
    for way in ways.values():
        way.check()
    return ways


class _Way:
    """Makes the way from a site to those that run elsewhere, once there is a session."""

    def __init__(self, site: SiteFile) -> None:
        self.site = site
        self.session: SparkSession | None = None

    def check(self) -> None:
        """Refuse what cannot be, before Spark starts.

        Raises:
            TransomError: An address or a certificate is missing.
        """
        self.site.mail(Hello(self.site.name))

    def __call__(self) -> Mail:
        """Return the way."""
        assert self.session is not None
        return self.site.mail(hello_of(self.site.name, self.session))


def hello_of(name: str, session: SparkSession) -> Hello:
    """Return what a site says of itself to others."""
    transom, spark = (".".join(each.split(".")[:2]) for each in (__version__, session.version))
    zone = str(session.conf.get("spark.sql.session.timeZone"))
    return Hello(name, transom=transom, spark=spark, zone=zone, ansi=is_ansi(session))


class Together:
    """Several applications of this process as one for people: one view, one Ctrl-C.

    Args:
        apps: The applications by site.
        show: Called with the progress of all.
    """

    def __init__(self, apps: Mapping[str, App], show: Callable[[Progress], None]) -> None:
        self._apps, self._show = apps, show
        self._progress: dict[str, Progress] = {}
        self._notes: list[str] = []
        self._news = threading.Event()
        self._lock = threading.Lock()

    def run(self, once: bool, close_all: bool) -> Progress:
        """Run all to their ends; an error of one ends the others, and is raised.

        Raises:
            TransomError: See `App.run`.
            KeyboardInterrupt: The second Ctrl-C.
        """
        running = {
            site: app.start(once=once, close_all=close_all, on_progress=partial(self._take, site))
            for site, app in self._apps.items()
        }

        def stop() -> None:
            for each in running.values():
                each.stop()

        def stop_at_once() -> None:
            for app in self._apps.values():
                app._stop_at_once()

        with interrupts(stop, stop_at_once):
            while not all(each.done for each in running.values()):
                if self._news.wait(0.25):
                    self._news.clear()
                    with self._lock:
                        self._show(self._merged())
                if any(each.failed for each in running.values()):
                    stop()
        for site, each in running.items():
            self._take(site, each.wait())
        return self._merged()

    def _take(self, site: str, progress: Progress) -> None:
        with self._lock:
            self._progress[site] = progress
            several = len(self._apps) > 1
            self._notes += [f"{site}: {note}" if several else note for note in progress.notes]
        self._news.set()

    def _merged(self) -> Progress:
        """Return the progress of all as one; those that make partials are shown as streams only."""
        several = len(self._apps) > 1
        streams, queries = [], []
        for site, progress in self._progress.items():
            at = f" at {site}"
            streams += [replace(each, name=each.name + at) if several else each for each in progress.streams]
            queries += [each for each in progress.queries if each.failure or not each.name.endswith(query_of(""))]
        notes, self._notes = tuple(self._notes), []
        newest = max(self._progress.values(), key=lambda each: each.at)
        return replace(newest, streams=tuple(streams), queries=tuple(queries), notes=notes)
