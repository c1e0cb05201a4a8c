"""By which identity flows of a site are known at their destinations: its checkpoint's, until something was lost."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from transom.checkpoint.files import required, write_atomically
from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY, START, decode, encode
from transom.storage.places import Place
from transom.widearea.parcels import FlowName

_FILE = "incarnations"


class Incarnations:
    """The identities of the flows that leave a site.

    Args:
        checkpoint: Identity of its checkpoint.
        directory: Where those are that are others.
        check: Returns while no other application has taken over the checkpoint.

    Raises:
        CheckpointCorruptError: The file is damaged.
        CheckpointError: It cannot be read.
    """

    def __init__(self, checkpoint: str, directory: Place, check: Callable[[], None]) -> None:
        self._checkpoint, self._path, self._check = checkpoint, directory / _FILE, check
        self._others: dict[FlowName, str] = {}
        if self._path.exists():
            with required(self._path):
                line = decode(self._path.read_bytes())
            if line is None:
                raise CheckpointCorruptError(f"The file {self._path} is damaged.", CORRUPT_REMEDY)
            self._others = {str(flow): str(identity) for flow, identity in line.value.items()}

    def of(self, flow: FlowName) -> str:
        """Return the identity of a flow."""
        return self._others.get(flow, self._checkpoint)

    def renew(self, flow: FlowName) -> str:
        """Give a flow another identity, durably, as its destination has cuts with numbers that will be given again.

        Raises:
            CheckpointFencedError: Another application has taken over the checkpoint.
            CheckpointError: It cannot be written.
        """
        others = {**self._others, flow: f"{self._checkpoint}+{secrets.token_hex(4)}"}
        self._check()
        write_atomically(self._path, [encode(others, START)[0]])
        self._others = others
        return others[flow]
