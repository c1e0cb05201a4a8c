"""`transom profile`: what a job costs on this machine, phase by phase, as a file for `transom plan`."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from transom.cli.choice import SparkChoice
from transom.cli.consoles import plain_console
from transom.cli.loading import load, reads_kafka
from transom.cli.quiet import spark_session
from transom.cli.versions import version_numbers
from transom.errors import DefinitionError
from transom.jobs.digest import job_digest
from transom.model.phases import Phase
from transom.model.time import MICROS_PER_SECOND, parse_duration
from transom.planning.profile import Profile
from transom.sinks.printing import plain_text

SHORTEST = 7.0
"""Seconds of the shortest profile: a second for each of its runs."""


def here() -> dict[str, str]:
    """Return what a profile depends on beside the job: versions and machine."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    return {**version_numbers(), "Python": platform.python_version(), "machine": machine}


def default_profile(job: Path) -> Path:
    """Return where the profile of a job is, if nothing else is said: in the working directory."""
    return Path(f"{job.stem}.profile.json")


def profile_job(job: Path, *, time: str, out: Path | None, spark: SparkChoice, as_json: bool) -> None:
    """Run a job for a while into no sink, and write what it costs.

    Raises:
        TransomError: The job cannot be loaded or run, or there is too little to measure.
    """
    seconds = parse_duration(time, "--for") / MICROS_PER_SECOND
    if seconds < SHORTEST:
        raise DefinitionError(f"profile: --for is {time}.", f"Give {SHORTEST:.0f} seconds or more.")
    where = out or default_profile(job)
    if not where.absolute().parent.is_dir():
        raise DefinitionError(f"profile: there is no directory {where.parent}.", "Make it, or give another --out.")
    digest = job_digest(job)
    with tempfile.TemporaryDirectory(prefix="transom-profile-", ignore_cleanup_errors=True) as aside:
        build = load(job, Path(aside, "checkpoint"), aside=True)
        spark = spark.with_kafka() if reads_kafka(job) else spark
        from transom.api.profiling import Profiler

        def say(line: str) -> None:
            print(line, file=sys.stderr)

        with spark_session(spark, f"transom profile {job.name}") as session:
            made = Profiler(lambda: build(session), seconds, say).run(session, digest, here())
    if as_json:
        print(made.to_json())
    beside = where.with_name(f".{where.name}.tmp")
    try:
        beside.write_text(made.to_json(), encoding="utf-8")
        beside.replace(where)
    except OSError as error:
        raise DefinitionError(
            f"profile: {where} cannot be written: {error.strerror}.", "Make room, or give another --out."
        ) from error
    if as_json:
        return
    plain_console().print(_shown_profile(made, where))


def _shown_profile(made: Profile, where: Path) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for head in ("stream", "cuts", "largest", "fixed", "per 1,000 rows", "CPU of these", "results of a closing"):
        table.add_column(head, justify="left" if head == "stream" else "right")
    for name, stream in made.streams.items():
        fixed = sum(stream.cost(phase).fixed for phase in Phase if phase is not Phase.LOOK)
        table.add_row(
            plain_text(name), f"{stream.cuts:,}", f"{stream.most_rows:,.0f} rows", f"{1e3 * fixed:.0f} ms",
            f"{1e6 * stream.cost(Phase.MAP).each:.2f} ms", f"{1e6 * stream.row_cpu:.2f} ms", f"{stream.results:,.0f}",
        )  # fmt: skip
    return Group(table, Text(f"Written to {where}. Next: transom plan JOB --profile {where} --rate N --within TIME"))
