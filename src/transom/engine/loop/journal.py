"""The journal of the loop and its parts: records of the log, steps for fault tests, notes for people."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from transom.checkpoint.store import Checkpoint
from transom.engine.changes.records import Register
from transom.sinks.owner import Claim, Owner

logger = logging.getLogger(__name__)

MOST_NOTES = 1000
"""So many wait for somebody who looks; all of them are in Python's log."""


class Journal:
    """Appends to the log; used on the loop's thread.

    Args:
        checkpoint: Open checkpoint.
        on_step: Called with the name of each step that a crash could follow.
    """

    def __init__(self, checkpoint: Checkpoint, on_step: Callable[[str], None]) -> None:
        self._checkpoint = checkpoint
        self.step = on_step
        self.register = Register()
        """The queries, as the log has them."""
        self.notes: deque[str] = deque(maxlen=MOST_NOTES)
        """Notes that were not shown yet; of very many, the newest."""

    def log(self, record: Mapping[str, Any], sync: bool) -> None:
        """Append a record to the log.

        Args:
            record: The record, as JSON.
            sync: Return when it is durable.

        Raises:
            CheckpointError: It cannot be written.
        """
        self._checkpoint.append(record, sync)
        self.register.take(record)

    def write_tables(self, name: str, tables: Mapping[str, pa.Table]) -> dict[str, Any]:
        """Make tables durable; return what a record must say to find them again.

        Raises:
            CheckpointError: They cannot be written.
        """
        return self._checkpoint.write_tables(name, tables)

    def check(self) -> None:
        """Return while no other application has taken over the checkpoint.

        Raises:
            CheckpointFencedError: One has.
        """
        self._checkpoint.check_writer()

    def claim(self, query: str) -> Claim:
        """Return with what a query takes the place of its results."""
        identity, known = self._checkpoint.identity, self.register
        owner = Owner(identity.id, query, str(self._checkpoint.path))
        is_new = query not in known.known and query not in known.gone
        return Claim(owner, is_new, identity.adopts, self._checkpoint.epoch, self.check)

    def note(self, text: str) -> None:
        """Tell people once."""
        logger.info("%s", text)
        self.notes.append(text)

    def take_notes(self) -> tuple[str, ...]:
        """Return what was not shown yet; it is shown now."""
        notes = tuple(self.notes)
        self.notes.clear()
        return notes
