"""Files that appear tick by tick, whatever becomes of those before: rows that come on a schedule."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Self


class Ticking(ABC):
    """Lets files appear when a tick is over, on a thread, from two ticks after it was entered on.

    Args:
        tick: Seconds.
    """

    def __init__(self, tick: float) -> None:
        self.tick = round(tick * 1e6)
        """Microseconds."""
        self.behind = 0.0
        """The longest that files came after their moment, seconds."""
        self._failure: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @abstractmethod
    def drafts(self, number: int) -> Sequence[tuple[Path, Path]]:
        """Write the files of a tick where nobody looks; return where they are, and where they will be."""

    @abstractmethod
    def over(self, number: int) -> None:
        """Take note that a tick is over, just before its files appear."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let no more files appear.

        Raises:
            RuntimeError: Files had stopped to appear.
        """
        self._stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise RuntimeError("the feed ended early") from self._failure

    def _run(self) -> None:
        try:
            number = time.time_ns() // 1_000 // self.tick + 2
            while not self._stopped.is_set():
                drafts = self.drafts(number)
                if self._stopped.wait(max(0.0, number * self.tick / 1e6 - time.time())):
                    return
                self.over(number)
                for draft, path in drafts:
                    draft.rename(path)
                self.behind = max(self.behind, time.time() - number * self.tick / 1e6)
                number += 1
        except BaseException as error:
            self._failure = error
