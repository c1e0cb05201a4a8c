"""Work that is done again when executors are lost under it, until a bound, as a Spark job waits for its cluster.

A Spark job that loses a task to a killed executor runs it again; but what decides where tasks run can find no executor
at all, one that is gone by the time the task is made, or files that went with one. All of this passes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from transom.engine.placed.placed import NoExecutorError
from transom.errors import SessionError, TransomError
from transom.failures import FailureKind, classify
from transom.model.time import MICROS_PER_SECOND, Clock, Micros, format_duration

logger = logging.getLogger(__name__)

PAUSE: Micros = MICROS_PER_SECOND // 5
"""From one try to the next, doubled each time up to `LONGEST_PAUSE`."""
LONGEST_PAUSE: Micros = 2 * MICROS_PER_SECOND

Result = TypeVar("Result")


def passes(error: BaseException) -> bool:
    """Tell whether an error is one of executors that were lost, so that another try may succeed."""
    lost = classify(error).kind in (FailureKind.EXECUTOR_LOST, FailureKind.PARTITION_GONE)
    return isinstance(error, NoExecutorError) or (lost and not isinstance(error, TransomError))


def outlasting(
    action: Callable[[], Result],
    bound: Micros,
    clock: Clock,
    before_again: Callable[[int], None] = lambda tries: None,
) -> Result:
    """Return what an action gives, tried again while executors are lost under it.

    Args:
        action: Can be done again from its beginning.
        bound: From the first failure on.
        clock: The time.
        before_again: Called before each further try, with the number of tries so far.

    Raises:
        SessionError: No try succeeded within the bound.
    """
    tries, give_up = 0, None
    while True:
        try:
            if tries:
                before_again(tries)
            return action()
        except Exception as error:
            if not passes(error):
                raise
            now = clock.monotonic()
            give_up = now + bound if give_up is None else give_up
            if now >= give_up:
                raise SessionError(
                    f"For {format_duration(bound)} executors were missing or lost: {classify(error).reason}",
                    "Look in the cluster why; patience=... of the collection says how long to wait for them.",
                ) from error
            logger.info("Executors are missing or were lost (%s); trying again.", classify(error).reason)
        clock.wait(min(give_up, now + min(LONGEST_PAUSE, PAUSE << min(tries, 8))), _sleep)
        tries += 1


def _sleep(timeout: Micros) -> bool:
    return threading.Event().wait(timeout / MICROS_PER_SECOND)
