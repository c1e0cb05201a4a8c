"""Putting a merged file in the place of those that it was made of, so that a crash at any moment costs nothing.

On a local file system: a temporary file, a journal that names the switch, a rename, then what is replaced is removed.
In a store of objects: the journal is put where none is, so that no other compaction begins; the merged file has its
name at once, and what it replaces is removed. A part that lies within a larger one counts for nothing and may be
removed by anyone, so that a journal that is found can be carried out again, also while whoever wrote it goes on.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

from transom.errors import SinkError
from transom.sinks.parts import LOCK, ResultFile, list_parts, superseded
from transom.storage.durable import replacing, sync_directory, writing
from transom.storage.places import ObjectPath, Place

JOURNAL = ".compact.json"

Merge: TypeAlias = "Callable[[Sequence[ResultFile], IO[bytes]], None]"
"""Writes what some parts hold into a file."""


def switch(directory: Place, parts: Sequence[ResultFile], merge: Merge) -> None:
    """Replace neighbouring parts by one, by whoever may compact the directory.

    Raises:
        SinkError: Another compaction is running there, as far as a store of objects can tell.
    """
    inputs = [part.name for part in parts]
    plan = {"output": ResultFile(parts[0].first, parts[-1].last, parts[0].extension).name, "inputs": inputs}
    if isinstance(directory, Path):
        _switch_files(directory, parts, merge, plan)
        return
    plan["by"] = secrets.token_hex(8)
    if not (directory / JOURNAL).put_new(json.dumps(plan).encode()):
        raise _another(directory)
    if not _carry_out(directory, merge, plan):
        raise _another(directory)


def _another(directory: Place) -> SinkError:
    return SinkError(f"compact: another compaction is running in {directory}.", "Wait for it to end.")


def may_have_begun(directory: Place) -> bool:
    """Tell whether a switch may have begun in a directory, ever: not without the file that is locked for it."""
    return not isinstance(directory, Path) or any((directory / name).exists() for name in (LOCK, JOURNAL))


def finish_switch(directory: Place, merge: Merge | None = None) -> None:
    """Finish the switch that a crash interrupted, and remove what is left over; by whoever may compact the directory.

    Args:
        directory: The results.
        merge: Needed to carry out what was begun in a store of objects; without, only what is there twice is removed.
    """
    if isinstance(directory, Path):
        _finish_files(directory)
        return
    _remove_superseded(directory)
    if merge is not None and (plan := _plan(directory)) is not None:
        _carry_out(directory, merge, plan)


def _switch_files(directory: Path, parts: Sequence[ResultFile], merge: Merge, plan: dict[str, Any]) -> None:
    temporary = f".compact-{plan['output']}.tmp"
    with writing(directory / temporary) as file:
        merge(parts, file)
    with replacing(directory / JOURNAL, unique=True) as file:
        file.write(json.dumps({"temporary": temporary, **plan}).encode())
    _rename(directory, temporary, plan["output"], plan["inputs"])
    (directory / JOURNAL).unlink()


def _finish_files(directory: Path) -> None:
    journal = directory / JOURNAL
    if journal.exists():
        plan = json.loads(journal.read_bytes())
        if (directory / plan["temporary"]).exists() or (directory / plan["output"]).exists():
            _rename(directory, plan["temporary"], plan["output"], plan["inputs"])
        journal.unlink(missing_ok=True)
    for name in os.listdir(directory):
        if name.startswith((".compact-", f".{JOURNAL}")) and name.endswith(".tmp"):
            (directory / name).unlink(missing_ok=True)


def _rename(directory: Path, temporary: str, output: str, inputs: Sequence[str]) -> None:
    """Put the merged file in place and remove what it replaces; may be repeated after a crash inside it."""
    if (directory / temporary).exists():
        os.replace(directory / temporary, directory / output)
    sync_directory(directory)
    for name in inputs:
        (directory / name).unlink(missing_ok=True)
    sync_directory(directory)


def _plan(directory: ObjectPath) -> dict[str, Any] | None:
    try:
        plan: dict[str, Any] = json.loads((directory / JOURNAL).read_bytes())
    except FileNotFoundError:
        return None
    return plan


def _carry_out(directory: ObjectPath, merge: Merge, plan: dict[str, Any]) -> bool:
    """Put the merged object and remove what it replaces; another one may do the same at the same time.

    Returns:
        Whether the plan could be carried out; it cannot when its parts have been merged otherwise.
    """
    output, done = directory / plan["output"], True
    if not output.exists():
        parts = [part for part in map(ResultFile.parse, plan["inputs"]) if part is not None]
        try:
            with writing(output, new=True) as file:
                merge(parts, file)
        except FileExistsError:
            pass
        except FileNotFoundError:
            done = output.exists()
    if done:
        directory.remove(plan["inputs"])
    _remove_superseded(directory)
    if _plan(directory) == plan:
        (directory / JOURNAL).unlink()
    return done


def _remove_superseded(directory: ObjectPath) -> None:
    directory.remove([part.name for part in superseded(list_parts(directory))])
