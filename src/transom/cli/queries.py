"""`transom queries`, `add`, `remove`, `pause` and `resume`: the queries of an application that runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from transom.checkpoint.control import ask
from transom.checkpoint.files import checkpoint_at
from transom.checkpoint.inspect import describe
from transom.checkpoint.lock import is_held
from transom.checkpoint.names import LOCK_FILE
from transom.cli.consoles import plain_console
from transom.engine.changes.records import Register
from transom.errors import CheckpointError, ControlError, JobFileError
from transom.jobs.jobfile import load_job
from transom.model.time import MIN_TIME, SystemClock, format_time, parse_duration
from transom.sinks.printing import plain_text
from transom.storage.places import ObjectPath, Place

_ALL = 1 << 60
_PAST = {"add": "added", "remove": "removed", "pause": "paused", "resume": "resumed"}


def checkpoint_of(target: Path) -> Place:
    """Return the checkpoint that a directory or a TOML job means.

    Raises:
        JobFileError: The job names none, or is not TOML.
        CheckpointError: There is nothing of that name.
    """
    if isinstance(where := checkpoint_at(target), ObjectPath):
        return where
    if target.is_dir():
        return target
    if not target.is_file():
        raise CheckpointError(
            f"There is no file or directory {target}.", "Give the checkpoint directory of an application, or its job."
        )
    if target.suffix != ".toml":
        raise JobFileError(
            f"{target} is no TOML job, so that its checkpoint is not known.", "Give the checkpoint's directory."
        )
    directory = load_job(target).checkpoint
    if directory is None:
        raise JobFileError(f"{target} names no checkpoint.", "Give the checkpoint's directory.")
    return checkpoint_at(directory)


def change_query(operation: str, target: Path, name: str, *, timeout: str, as_json: bool) -> None:
    """Remove, pause or resume a query, and say what happened.

    Raises:
        ControlError: No application runs, it does not answer, or it refuses.
    """
    _ask(checkpoint_of(target), {"operation": operation, "names": [name]}, timeout, as_json)


def add_queries(job: Path, name: str | None, checkpoint: Path | None, *, timeout: str, as_json: bool) -> None:
    """Add queries of a job file, and say what happened.

    Raises:
        ControlError: No application runs, it does not answer, or it refuses.
        JobFileError: The job cannot be read.
    """
    if not job.is_file():
        raise JobFileError(f"There is no job file {job}.", "Give the path of the TOML file.")
    where = checkpoint_at(checkpoint) if checkpoint else checkpoint_of(job)
    names = [] if name is None else [name]
    _ask(where, {"operation": "add", "names": names, "job": str(job.absolute())}, timeout, as_json)


def _ask(checkpoint: Place, request: Mapping[str, Any], timeout: str, as_json: bool) -> None:
    answer = ask(checkpoint, request, SystemClock(), parse_duration(timeout, "--timeout"))
    if "error" in answer:
        raise ControlError(answer["error"]["message"], answer["error"]["remedy"])
    changes = answer["changes"]
    if as_json:
        print(json.dumps({"changes": [{**c, "complete_from": _moment(c["complete_from"])} for c in changes]}))
    else:
        for change in changes:
            if change["error"] is None:
                print(f"{change['query']} was {_PAST[change['operation']]}{_since(change['complete_from'])}.")
        if not changes:
            print("Nothing to do: the application has all queries of the job.")
    refused = [change["error"] for change in changes if change["error"] is not None]
    if refused:
        raise ControlError(*[" ".join(error[part] for error in refused) for part in ("message", "remedy")])


def _since(complete_from: int | None) -> str:
    if complete_from is None:
        return ""
    if complete_from <= MIN_TIME:
        return "; all its windows are complete"
    return f"; its windows are complete from {format_time(complete_from)} on"


def _moment(complete_from: int | None) -> int | None:
    return None if complete_from is None or complete_from <= MIN_TIME else complete_from


def show_queries(target: Path, *, as_json: bool) -> None:
    """Print the queries of an application, running or not, as its checkpoint knows them.

    Raises:
        CheckpointError: There is no checkpoint, or it is damaged.
    """
    checkpoint = checkpoint_of(target)
    found = describe(checkpoint, last=_ALL)
    register = Register.of(found["snapshot"]["state"] if found["snapshot"] else {})
    for record in found["last_records"]:
        register.take(record)
    runs = is_held(checkpoint / LOCK_FILE)
    if as_json:
        print(json.dumps({"application_runs": runs, "queries": _as_json(register)}))
        return
    plain_console().print(_as_table(register))
    if not runs:
        print(f"No application runs on {checkpoint} at the moment.")


def _as_json(register: Register) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "stream": query.stream,
            "state": "failed" if query.failure else query.words,
            "failure": query.failure,
            "complete_from": _moment(query.complete_from),
        }
        for name, query in register.known.items()
    ]


def _as_table(register: Register) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("query", "stream", "state", "windows complete from (UTC)"):
        table.add_column(heading, overflow="fold")
    for name, query in register.known.items():
        since = "the first row" if query.complete_from <= MIN_TIME else format_time(query.complete_from)
        table.add_row(*map(plain_text, (name, query.stream, query.words)), since)
    for name, gone in register.gone.items():
        if gone["asked"]:
            table.add_row(*map(plain_text, (name, gone["definition"]["stream"])), "removed", "-", style="dim")
    return table
