"""The owner of the results in a place: a query of one checkpoint. A directory says so in a file, which is made once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from transom.errors import SinkError
from transom.sinks.parts import list_parts
from transom.storage.durable import create_once
from transom.storage.places import Place

MARK = "_transom"
"""The file; readers of Parquet and JSON pass over names that begin like this one."""
_WITH_MARK = {
    "directory": f", with the file {MARK}",
    "table": ", with its row in transom_results",
    "topic": ": delete the topic and make it again",
}


@dataclass(frozen=True)
class Owner:
    """A query of a checkpoint, to which results belong for ever."""

    checkpoint: str
    """Identity of the checkpoint."""
    query: str
    path: str
    """Where the checkpoint was when it took the place; for people."""


@dataclass(frozen=True)
class Claim:
    """A query that wants to write its results somewhere."""

    owner: Owner
    is_new: bool = False
    """Whether the checkpoint has never known the query, so that no results can be its own."""
    adopts: bool = False
    """Whether the checkpoint was made before places were marked, so that results without a mark can be its own."""
    epoch: int = 0
    """Number of the run; a newer one of the same checkpoint has a higher one, and older ones may not write then."""
    check: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Returns while this run is the newest of its checkpoint, else raises CheckpointFencedError; asked before results
    are removed that a newer one may have written."""

    @property
    def query(self) -> str:
        """Name of the query."""
        return self.owner.query

    def allowed(self, holder: Owner | None, has_results: bool, place: str, kind: str) -> bool:
        """Tell whether the query has still to be noted as the holder of a place that it may have.

        Args:
            holder: Whose the place is; None when it does not say so.
            has_results: Whether it holds results.
            place: The place, in words.
            kind: What it is: `directory`, `table` or `topic`.

        Raises:
            SinkError: It may not have it.
        """
        if holder is not None and holder.checkpoint != self.owner.checkpoint:
            raise SinkError(
                f"{self.query}: {place} belongs to the query {holder.query!r} of the checkpoint {holder.path} "
                f"(id {holder.checkpoint}); this is the checkpoint {self.owner.path} (id {self.owner.checkpoint}).",
                f"Choose another {kind}, or use that checkpoint. To begin afresh here, move the old results away first"
                f"{_WITH_MARK[kind]}.",
            )
        if holder is not None and holder.query != self.query:
            raise SinkError(
                f"{self.query}: {place} belongs to the query {holder.query!r} of this checkpoint.",
                f"Give each query a {kind} of its own. If {holder.query!r} was removed or renamed, keep its "
                f"name, or move its results away first{_WITH_MARK[kind]}.",
            )
        if has_results and (self.is_new or (holder is None and not self.adopts)):
            why = "but the checkpoint does not know the query" if self.is_new else "and does not say whose they are"
            raise SinkError(
                f"{self.query}: {place} holds results already, {why}.",
                f"Choose another {kind}, use the checkpoint that the results were made with, or move them away"
                f"{_WITH_MARK[kind]}.",
            )
        return holder is None


def refuse_results_ahead(query: str, place: str, kind: str, last: int, next_cut: int) -> None:
    """Check that a place holds no results of cuts that the checkpoint has still to make.

    Args:
        query: The query that writes there.
        place: The place, in words.
        kind: What it is: `directory`, `table` or `topic`.
        last: The last cut whose results it holds; -1 for none.
        next_cut: The one with which the checkpoint continues.

    Raises:
        SinkError: Place and checkpoint do not belong together.
    """
    if last >= next_cut:
        raise SinkError(
            f"{query}: {place} holds results up to cut {last}, but the checkpoint continues with cut {next_cut}.",
            f"Use the checkpoint that the results were made with, or another {kind}.",
        )


def take_directory(directory: Place, claim: Claim, has_results: bool | None = None) -> None:
    """Make a directory that of a query, for ever; of several that try at once, one succeeds.

    Args:
        directory: Exists.
        claim: Who wants it.
        has_results: Whether it holds results; None to look for result files.

    Raises:
        SinkError: It belongs to another query or checkpoint, or holds results of unknown origin. Nothing was changed.
    """
    has_results = bool(list_parts(directory)) if has_results is None else has_results
    if claim.allowed(owner_of(directory), has_results, str(directory), "directory"):
        owner = claim.owner
        text = json.dumps({"checkpoint": owner.checkpoint, "query": owner.query, "path": owner.path})
        create_once(directory / MARK, text.encode() + b"\n")
        claim.allowed(owner_of(directory), has_results, str(directory), "directory")  # somebody may have been faster


def owner_of(directory: Place) -> Owner | None:
    """Return whose results a directory holds; None when it does not say so.

    Raises:
        SinkError: The file that says so is damaged.
    """
    try:
        text = (directory / MARK).read_bytes()
    except FileNotFoundError:
        return None
    try:
        value = json.loads(text)
        return Owner(value["checkpoint"], value["query"], value["path"])
    except (ValueError, KeyError, TypeError):
        raise SinkError(
            f"The file {directory / MARK}, which says whose results these are, is damaged.",
            "Restore it from a copy, or choose another directory.",
        ) from None
