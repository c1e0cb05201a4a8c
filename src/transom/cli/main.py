"""The commands and what they have in common: help, errors without a stack trace, exit codes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from transom.cli.choice import SparkChoice, spark_of
from transom.cli.consoles import plain_console
from transom.cli.options import (
    Application,
    AsJson,
    Checkpoint,
    CloseAll,
    Conf,
    Job,
    Master,
    Name,
    Once,
    Packages,
    Timeout,
    require_an_end,
)
from transom.cli.planning import plan, profile
from transom.cli.signals import RECEIVED, exit_code, interrupted_once
from transom.errors import TransomError

OLDEST_PYTHON = (3, 11)


class _Group(TyperGroup):
    """Commands whose `TransomError` becomes a message, a remedy and exit code 1; after a signal they say nothing."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(exit_code(interrupt)) from None
        except Exception as error:
            if RECEIVED:  # libraries can make another error of an interrupt
                raise typer.Exit(128 + RECEIVED[0]) from None
            if isinstance(error, TransomError):
                print_error(error)
            elif isinstance(error, BrokenPipeError):  # the reader, such as head, has seen enough
                sys.stderr.close()
            elif isinstance(error, OSError):
                remedy = "Check that the disk has room, and that this user may read and write there."
                print_error(TransomError(f"A file cannot be used: {error}.", remedy))
            else:
                raise
        raise typer.Exit(1)


cli = typer.Typer(
    name="transom",
    cls=_Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    add_completion=False,
    help=(
        "Many windowed streaming queries with stated latency limits on Apache Spark.\n\n"
        "Start with [bold]transom demo[/bold], or run a job of your own: "
        "[bold]transom run job.toml[/bold].\n\n"
        "Exit codes: 0 done, or stopped with everything in place; 1 an error with a remedy; 2 wrong usage; stopped at "
        "once: 130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP."
    ),
)


def _show_versions(wanted: bool) -> None:
    """Print the versions of Transom, Spark and Java, without starting Spark."""
    if wanted:
        from transom.cli.versions import versions

        print(versions())
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_versions, is_eager=True, help="Show the versions of Transom, Spark, Java."
        ),
    ] = False,
) -> None:
    """Take the options of `transom` itself."""


@cli.command()
def run(
    job: Job,
    once: Once = False,
    close_all: CloseAll = False,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Checkpoint to use instead of the job's.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    packages: Packages = None,
    as_json: AsJson = False,
) -> None:
    """Run a job until Ctrl-C, or over what is there now (--once).

    Ctrl-C, SIGTERM and SIGHUP finish the micro-batch; a second Ctrl-C or SIGTERM stops at once.
    The next run goes on where this one ended; no result is lost or written twice.

    Example: [bold]transom run job.toml --once --close-all[/bold]
    """
    from transom.cli.running import run_job

    require_an_end(once, close_all)
    spark = spark_of(master, conf, packages)
    run_job(job, once=once, close_all=close_all, checkpoint=checkpoint, spark=spark, as_json=as_json)


@cli.command()
def site(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="SITE...", help="The TOML file of a site; of several, all sites run in this process."),
    ],
    once: Once = False,
    close_all: CloseAll = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Go on where a site's or a destination's checkpoint was lost: with windows of which nothing is lost.",
        ),
    ] = False,
    master: Master = None,
    conf: Conf = None,
    packages: Packages = None,
    as_json: AsJson = False,
) -> None:
    """Run a site of a job that several sites run together: each sends partial aggregates, of which come exact results.

    Example: [bold]transom site north.toml south.toml home.toml --once --close-all[/bold]
    """
    from transom.cli.sites import run_sites

    require_an_end(once, close_all)
    spark = spark_of(master, conf, packages)
    run_sites(files, once=once, close_all=close_all, accept_loss=accept_loss, spark=spark, as_json=as_json)


@cli.command()
def coordinate(
    topology: Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="The TOML file with the sites and their links.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it takes reports.")] = "127.0.0.1:7400",
    state: Annotated[Path, typer.Option(metavar="FILE", help="Keeps the plan.")] = Path("plan.json"),
    certificate: Annotated[
        Path | None, typer.Option(metavar="PEM", help="Its certificate, with the name coordinator.")
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="PEM", help="The key of that.")] = None,
    authority: Annotated[Path | None, typer.Option(metavar="PEM", help="Whose certificates it believes.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS, on this machine only.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show links and the last plan, then end.")] = False,
) -> None:
    """Plan for sites which way their partial aggregates travel, and how often, from what they report.

    Example: [bold]transom coordinate topology.toml --insecure[/bold]
    """
    from transom.cli.coordinate import coordinate as run_coordinator

    secrets = (certificate, key, authority)
    run_coordinator(topology, listen=listen, state=state, secrets=secrets, insecure=insecure, dry_run=dry_run)


@cli.command()
def sites(
    files: Annotated[list[Path], typer.Argument(metavar="SITE...", help="The TOML files of sites on this machine.")],
    as_json: AsJson = False,
) -> None:
    """Show how sites stand with one another: links, what leaves and arrives, which site windows wait for.

    Example: [bold]transom sites home.toml[/bold]
    """
    from transom.cli.standing import show_sites

    show_sites(files, as_json=as_json)


@cli.command()
def explain(
    job: Job,
    master: Master = "local[1]",
    conf: Conf = None,
    packages: Packages = None,
    as_json: AsJson = False,
) -> None:
    """Show what a job would do: its streams, queries, panes, and what they share. Reads no data.

    Example: [bold]transom explain job.toml[/bold]
    """
    from transom.cli.explaining import explain_job

    explain_job(job, spark=spark_of(master, conf, packages), as_json=as_json)


cli.command()(profile)
cli.command()(plan)


@cli.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where input and results go.")] = Path("demo-out"),
    rows: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the first N flights; all 336,776 without it.")
    ] = None,
    master: Master = "local[2]",
    as_json: AsJson = False,
) -> None:
    """Replay the flights that left New York in 2013 as a stream, in the order in which they really left.

    Example: [bold]transom demo --rows 50000[/bold]
    """
    from transom.cli.running import run_demo

    run_demo(out, rows=rows, spark=SparkChoice(master), as_json=as_json)


@cli.command("dead-letters")
def dead_letters(
    directory: Checkpoint,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="Sample rows per reason.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Show the rows that no window could take, and why: counts per reason, then samples.

    Example: [bold]transom dead-letters ckpt --limit 10[/bold]
    """
    from transom.cli.deadletters import show_dead_letters

    show_dead_letters(directory, limit=limit, as_json=as_json)


@cli.command()
def compact(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of one query's results.")],
    before_cut: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Only files of micro-batches before N.")
    ] = None,
) -> None:
    """Merge the small result files of a sink into few big ones. Safe while the job runs.

    Example: [bold]transom compact out/fares[/bold]
    """
    from transom.cli.upkeep import compact_results

    compact_results(directory, before_cut=before_cut)


@cli.command()
def checkpoint(directory: Checkpoint, as_json: AsJson = False) -> None:
    """Show what a checkpoint holds: format, size, newest log records. Never changes it.

    Example: [bold]transom checkpoint ckpt[/bold]
    """
    from transom.cli.upkeep import show_checkpoint

    show_checkpoint(directory, as_json=as_json)


@cli.command()
def queries(app: Application, as_json: AsJson = False) -> None:
    """List the queries of an application: their state, and from when on their windows are complete.

    Example: [bold]transom queries job.toml[/bold]
    """
    from transom.cli.queries import show_queries

    show_queries(app, as_json=as_json)


@cli.command()
def add(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="The TOML job that the application was started from.")],
    name: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="The query; without it all that the application lacks.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The checkpoint, if run was given one.")
    ] = None,
    timeout: Timeout = "60 seconds",
    as_json: AsJson = False,
) -> None:
    """Add queries that you wrote into its job file to the running application.

    A new query takes what the running ones keep of the past; the answer says from when on its windows are complete.

    Example: [bold]transom add job.toml fares[/bold]
    """
    from transom.cli.queries import add_queries

    add_queries(job, name, checkpoint, timeout=timeout, as_json=as_json)


@cli.command()
def remove(app: Application, name: Name, timeout: Timeout = "60 seconds", as_json: AsJson = False) -> None:
    """Take a query out of the running application; its open windows are dropped, its results stay.

    Delete it from the job, too. As long as it is there unchanged, a restart leaves it out.

    Example: [bold]transom remove ckpt fares[/bold]
    """
    from transom.cli.queries import change_query

    change_query("remove", app, name, timeout=timeout, as_json=as_json)


@cli.command()
def pause(app: Application, name: Name, timeout: Timeout = "60 seconds", as_json: AsJson = False) -> None:
    """Let a query of the running application rest; it misses the rows that come meanwhile.

    Example: [bold]transom pause ckpt fares[/bold]
    """
    from transom.cli.queries import change_query

    change_query("pause", app, name, timeout=timeout, as_json=as_json)


@cli.command()
def resume(app: Application, name: Name, timeout: Timeout = "60 seconds", as_json: AsJson = False) -> None:
    """Let a paused query run again; the answer says from when on its windows are complete.

    Example: [bold]transom resume ckpt fares[/bold]
    """
    from transom.cli.queries import change_query

    change_query("resume", app, name, timeout=timeout, as_json=as_json)


def print_error(error: TransomError) -> None:
    """Print an error for people: what happened in red, what to do beneath; control characters are escaped."""
    from transom.sinks.printing import plain_text

    console = plain_console(stderr=True, soft_wrap=True)
    for text, style in ((error.message, "bold red"), (error.remedy, "")):
        if text:
            console.print(Text("\n".join(map(plain_text, text.splitlines())), style=style))


def main() -> None:
    """Run the command line; the entry point of the package."""
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        sys.exit(f"Transom needs Python {needed} or newer; this is {sys.version.split()[0]}.")
    with interrupted_once():
        cli()
