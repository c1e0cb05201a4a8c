"""Asking at a fixed rate, and at ever higher rates until the limit is lost."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from benchmarks.harness import percentile
from benchmarks.questions import Ask, Question
from benchmarks.rates import Search, Trial

QUANTILE = 0.95
LEAST = 20
"""Questions of a run: one of them may be too late."""
THREADS = 64
"""Questions in flight at most; later ones wait, and their time counts from when they are due."""


def open_loop(ask: Ask, asked: Sequence[Question], rate: float, limit: float = math.inf) -> list[float]:
    """Ask at a fixed rate, whether or not answers come; return seconds from when each question was due.

    Once more questions than the quantile allows are late, the rest is not asked: it counts as infinite.
    """
    latencies = [math.inf] * len(asked)
    late: list[int] = []
    most = len(asked) - math.ceil(QUANTILE * len(asked))
    start = time.perf_counter() + 0.05

    def one(number: int) -> None:
        ask(asked[number])
        latencies[number] = time.perf_counter() - start - number / rate
        if latencies[number] > limit:
            late.append(number)

    with ThreadPoolExecutor(THREADS) as pool:
        waiting = threading.Event()
        for number in range(len(asked)):
            waiting.wait(max(0.0, start + number / rate - time.perf_counter()))
            if len(late) > most:
                break
            pool.submit(one, number).add_done_callback(_raised)
    return latencies


def _raised(future) -> None:
    if error := future.exception():
        raise error


def climb(
    ask: Ask, asked: Sequence[Question], seconds: float, search: Search, until: Callable[[], bool]
) -> list[Trial]:
    """Ask at the rates of a search, and return what came of each.

    Args:
        ask: The form.
        asked: Questions, asked in turn.
        seconds: Of a run at one rate; longer if it would have too few questions.
        search: For the highest rate whose quantile is within its limit.
        until: Whether to stop before the search ends; one rate is always tried.
    """
    trials: list[Trial] = []
    while (rate := search.next(trials)) is not None and (not trials or not until()):
        offset = len(trials) * LEAST
        many = [asked[(offset + n) % len(asked)] for n in range(max(LEAST, int(rate * seconds)))]
        trials.append(Trial(rate, percentile(open_loop(ask, many, rate, search.limit), QUANTILE)))
    return trials


def alone(ask: Ask, asked: Sequence[Question]) -> float:
    """Return the median seconds of a question by itself."""
    taken = []
    for question in asked:
        begun = time.perf_counter()
        ask(question)
        taken.append(time.perf_counter() - begun)
    return median(taken)


def warm(ask: Ask, asked: Sequence[Question], most: float) -> int:
    """Ask one after the other until answers come no faster: compilers have caught up. Return how many were asked.

    Args:
        ask: The form.
        asked: Questions, asked in turn.
        most: Seconds after which it ends in any case.
    """
    begun = time.perf_counter()
    before, best, count = math.inf, math.inf, 0
    while best < 0.95 * before or count < 3 * LEAST:
        if time.perf_counter() - begun > most:
            break
        before, best = best, min(best, alone(ask, [asked[(count + n) % len(asked)] for n in range(LEAST)]))
        count += LEAST
    return count
