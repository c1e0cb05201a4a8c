"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Job = Annotated[
    Path,
    typer.Argument(
        metavar="JOB",
        help="A TOML job, or a Python file with build(spark) -> App or build(spark, checkpoint) -> App. "
        "Relative paths in a job are relative to the working directory.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Spark master; without it spark-submit's, or else this machine.", show_default=False
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated. Others see it: no secrets."),
]
Packages = Annotated[
    str | None,
    typer.Option(metavar="G:A:V,...", help="Jars for Spark by their Maven coordinates, such as connectors."),
]
Once = Annotated[bool, typer.Option("--once", help="Process what is there, then end.")]
CloseAll = Annotated[
    bool, typer.Option("--close-all", help="At the end, also emit windows that are still open; with --once.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Application = Annotated[
    Path, typer.Argument(metavar="APP", help="The checkpoint directory of an application, or its TOML job.")
]
Name = Annotated[str, typer.Argument(metavar="QUERY", help="The name of a query.")]
Timeout = Annotated[str, typer.Option(metavar="TIME", help="How long to wait for the application.")]
Checkpoint = Annotated[Path, typer.Argument(metavar="DIR", help="The checkpoint directory of an application.")]


def require_an_end(once: bool, close_all: bool) -> None:
    """Refuse to close all windows at the end of a run that has none.

    Raises:
        typer.BadParameter: `close_all` without `once`.
    """
    if close_all and not once:
        raise typer.BadParameter("--close-all goes with --once: a run that goes on never knows the end of its input.")
