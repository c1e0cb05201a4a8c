"""Requests to a running application, through files in its checkpoint: who asks, who answers.

    control/ID.request.json    put there by a command, taken away by the application
    control/ID.answer.json     the other way round

A request counts once: it is removed before it is done. Files are there completely or not at all. What nobody takes is
removed: a request by the command that gave up waiting or when it is out of date, an answer after a minute, and
everything when the next application opens the checkpoint.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transom.checkpoint.files import write_atomically
from transom.checkpoint.lock import is_held
from transom.checkpoint.names import CONTROL, LOCK_FILE
from transom.checkpoint.opening import read_format
from transom.errors import CheckpointError, ControlError
from transom.model.time import MICROS_PER_SECOND, Clock, Micros
from transom.storage.durable import make_directory, names_in
from transom.storage.places import Place
from transom.storage.translated import translated

_REQUEST, _ANSWER = ".request.json", ".answer.json"
_LOOK_EVERY: Micros = MICROS_PER_SECOND // 20
_STORE_EVERY: Micros = 2 * MICROS_PER_SECOND
"""How often an application looks for requests in a store of objects, where each look costs."""
_ANSWERS_LAST: Micros = 60 * MICROS_PER_SECOND


@dataclass(frozen=True)
class Asked:
    """A request that was taken."""

    id: str
    request: Mapping[str, Any]


class Inbox:
    """The application's side. Only one may be open for a checkpoint, which the checkpoint's lock sees to.

    Args:
        checkpoint: Directory of the open checkpoint; requests from before are removed.
        clock: The time.
    """

    def __init__(self, checkpoint: Place, clock: Clock) -> None:
        self._directory = checkpoint / CONTROL
        self._clock = clock
        self._answered: dict[str, Micros] = {}
        self._not_before: Micros = 0
        with translated(self._directory, "create"):
            make_directory(self._directory)
            for name in names_in(self._directory):
                (self._directory / name).unlink(missing_ok=True)

    def take(self) -> list[Asked]:
        """Return the requests that have come, the oldest name first; costs the listing of a directory."""
        now, asked = self._clock.now(), []
        if not isinstance(self._directory, Path):
            if self._clock.monotonic() < self._not_before:
                return []
            self._not_before = self._clock.monotonic() + _STORE_EVERY
        with suppress(OSError):  # the directory may have been removed; the application goes on
            for name in sorted(names_in(self._directory)):
                if name.endswith(_REQUEST) and not name.startswith("."):
                    request = self._take(self._directory / name)
                    if request is not None and request.get("until", 0) >= now:
                        asked.append(Asked(name.removesuffix(_REQUEST), request))
        for name, at in list(self._answered.items()):
            if at < self._clock.monotonic() - _ANSWERS_LAST:
                del self._answered[name]
                with suppress(OSError):
                    (self._directory / f"{name}{_ANSWER}").unlink(missing_ok=True)
        return asked

    @staticmethod
    def _take(path: Place) -> dict[str, Any] | None:
        try:
            text = path.read_bytes()
            path.unlink()
            value = json.loads(text)
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def answer(self, asked: Asked, answer: Mapping[str, Any]) -> None:
        """Answer a request; when that is not possible, the one who asked gets no answer."""
        with suppress(CheckpointError):
            path = self._directory / f"{asked.id}{_ANSWER}"
            write_atomically(path, [json.dumps(answer).encode()], sync=False)
            self._answered[asked.id] = self._clock.monotonic()


def ask(checkpoint: Place, request: Mapping[str, Any], clock: Clock, timeout: Micros) -> dict[str, Any]:
    """Ask the application that runs on a checkpoint, and return its answer.

    Args:
        checkpoint: The directory.
        request: What JSON holds.
        clock: The time.
        timeout: How long to wait; microseconds.

    Raises:
        ControlError: No application runs on it, or it does not answer in time; says whether the request counts.
        CheckpointError: It is no checkpoint, or not accessible.
    """
    root = checkpoint.absolute()
    if read_format(root) is None:
        raise CheckpointError(
            f"There is no checkpoint in {root}.", "Give the directory that the application was started with."
        )
    if not is_held(root / LOCK_FILE):
        raise ControlError(
            f"No application runs on the checkpoint {checkpoint}.", "Start it with transom run, then ask again."
        )
    name = f"{clock.now():020d}-{os.getpid()}-{secrets.token_hex(4)}"
    path, reply = root / CONTROL / f"{name}{_REQUEST}", root / CONTROL / f"{name}{_ANSWER}"
    until = clock.monotonic() + timeout
    with translated(root / CONTROL, "create"):
        make_directory(root / CONTROL)
    write_atomically(path, [json.dumps({**request, "until": clock.now() + timeout}).encode()], sync=False)
    try:
        _wait(root, reply, clock, until)
        if reply.exists():
            answer = json.loads(reply.read_bytes())
            if isinstance(answer, dict):
                return answer
    except (ValueError, OSError):
        pass  # it was damaged: as if there were none
    finally:
        withdrawn = _removed(path)
        _removed(reply)
    lives = is_held(root / LOCK_FILE)
    raise ControlError(
        f"The application on {checkpoint} {'did not answer in time' if lives else 'ended before it answered'}"
        + ("; nothing was changed." if withdrawn else ", but it has the request."),
        "Ask again, with a longer --timeout if it is busy."
        if withdrawn
        else "See transom queries for what became of it.",
    )


def _wait(root: Place, reply: Place, clock: Clock, until: Micros) -> None:
    never = threading.Event()
    looks = 0
    while not reply.exists() and clock.monotonic() < until:
        looks += 1
        if looks % 20 == 0 and not is_held(root / LOCK_FILE):
            return
        clock.wait(min(until, clock.monotonic() + _LOOK_EVERY), lambda timeout: never.wait(timeout / 1e6))


def _removed(path: Place) -> bool:
    """Remove a file, and tell whether it was there; of one in a store that is not known."""
    try:
        path.unlink()
    except OSError:
        return False
    return isinstance(path, Path)
