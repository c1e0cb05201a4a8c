"""The commands that say beforehand what a job takes: `transom profile` and `transom plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transom.cli.choice import spark_of
from transom.cli.options import AsJson, Conf, Job, Master, Packages, Timeout


def profile(
    job: Job,
    time: Annotated[str, typer.Option("--for", metavar="TIME", help="How long it runs.")] = "60s",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where it is written; JOB.profile.json without it.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    packages: Packages = None,
    as_json: AsJson = False,
) -> None:
    """Measure what a job costs, phase by phase, on what its source has; its results go nowhere.

    Example: [bold]transom profile job.toml --for 60s[/bold]
    """
    from transom.cli.profiling import profile_job

    spark = spark_of(master, conf, packages)
    profile_job(job, time=time, out=out, spark=spark, as_json=as_json)


def plan(
    job: Annotated[Path, typer.Argument(metavar="JOB|APP", help="A job; or the checkpoint of what runs.")],
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What transom profile wrote; JOB.profile.json, or of what runs, without it."),
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(metavar="N|STREAM=N", help="Rows per second of each source, or of one; may be repeated."),
    ] = None,
    within: Annotated[
        str | None, typer.Option(metavar="TIME", help="The limit; without it those of the job's queries.")
    ] = None,
    quantile: Annotated[float, typer.Option(metavar="SHARE", help="Share of the results within it.")] = 0.99,
    cores: Annotated[
        int | None, typer.Option(metavar="N", help="The most cores; with --max-executors those of each.")
    ] = None,
    max_executors: Annotated[int | None, typer.Option(metavar="N", help="The most executors of a cluster.")] = None,
    timeout: Timeout = "60 seconds",
    as_json: AsJson = False,
) -> None:
    """Say what it takes to keep a limit at a rate: the smallest machine, its settings, where the time goes.

    Exit code 1 if it cannot be met, with the reason and the nearest that can. Needs no Spark.

    Without a rate: settings, predicted and measured latency, and past changes of the application that runs.

    Example: [bold]transom plan job.toml --rate 50000 --within 2s[/bold]
    """
    from transom.cli.plans import plan_job

    plan_job(
        job,
        rates=rate or (),
        within=within,
        quantile=quantile,
        cores=cores,
        executors=max_executors,
        profile=profile,
        timeout=timeout,
        as_json=as_json,
    )
