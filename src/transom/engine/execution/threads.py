"""A few threads for work that may hang: nothing waits for it longer than it wants to."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """Does what is submitted on at most `count` threads, the earlier first; used by one thread.

    Unlike those of `concurrent.futures`, which the interpreter waits for, these end with the process.

    Args:
        count: Number of threads; each begins when it is needed.
        name: Begins their names.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._threads: list[threading.Thread] = []
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Let a thread call a function; whatever it raises, also `SystemExit`, is the future's."""
        future: Future[T] = Future()
        self._work.put((future, partial(function, *arguments)))
        if len(self._threads) < self._count:
            self._start()
        return future

    def allow(self, count: int) -> None:
        """Let there be so many threads, if that is more than before; those that there are stay."""
        self._count = max(self._count, count)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending: from Python 3.12 on no thread starts then
            if not self._threads:
                self._work.put(None)
                self._run()
        else:
            self._threads.append(thread)

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del item, future, call  # else what it refers to stays until there is more to do

    def close(self, longest: float) -> bool:
        """Cancel what has not begun, and wait for what has; return whether it has ended.

        Args:
            longest: Seconds to wait.
        """
        with suppress(queue.Empty):
            while True:  # a thread may take the last one at any moment, so that whether there is one says nothing
                if (item := self._work.get_nowait()) is not None:
                    item[0].cancel()
        for _ in self._threads:
            self._work.put(None)
        done = True
        for thread in self._threads:
            thread.join(longest if done else 0)
            done = done and not thread.is_alive()
        return done
