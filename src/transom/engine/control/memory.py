"""Memory in use: of the driver's process, of Spark's cache, of the JVM's heap, each against its limit."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.model.sessions import is_connect, java_class
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.scheduling.memory import MemoryMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK: Micros = MICROS_PER_SECOND // 2
"""Time between two measurements."""
HALF = 0.5
"""Of the machine's memory is the driver's if the settings do not say: the JVM and the system need theirs."""
TRIMMED = 0.5
"""From this share on, memory that the driver has freed but not given back is given back before it is measured."""
COLLECTED_EVERY = 24
"""At most once for so many questions to the JVM its garbage is collected on purpose: once a minute or so."""
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True)
class Shares:
    """Shares of memory in use, 0 to 1 and a little more; 0 where it cannot be measured."""

    driver: float = 0.0
    """Resident bytes of this process over its limit."""
    cache: float = 0.0
    """Bytes that Spark's executors hold as blocks, over what they may."""
    heap: float = 0.0
    """Bytes of the JVM's heap that the last collection left in use, over its maximum: garbage does not count."""

    @property
    def largest(self) -> float:
        """The largest of them, which decides."""
        return max(self.driver, self.cache, self.heap)

    def __str__(self) -> str:
        return f"driver {self.driver:.0%}, cache {self.cache:.0%}, heap {self.heap:.0%}"


class MemoryGauge:
    """Measures memory. The process is asked each time (20 microseconds), the JVM now and then (a millisecond).

    Args:
        session: Transom's session; with Spark Connect only the driver is measured.
        limit: Bytes that the driver's process may use; None for half of the machine's memory, or of the container's.
        bound: Share from which on memory is short; garbage is collected before the heap counts as that.
        every: The JVM is asked each time that so many measurements were made.
    """

    def __init__(self, session: SparkSession, limit: int | None, bound: float = 1.0, every: int = 5) -> None:
        self._bound, self._every = bound, every
        self._made = 0
        self._uncollected = COLLECTED_EVERY
        """Questions to the JVM since garbage was collected."""
        self._known = Shares()
        self._limit = limit or default_limit()
        self._classic = None if is_connect(session) else session
        self._pools = () if self._classic is None else _old_pools(self._java("management.ManagementFactory"))

    def measure(self) -> Shares:
        """Return the shares now; what cannot be measured, as when the JVM is gone, counts as nothing."""
        driver = resident_bytes() / self._limit
        often = self._made % self._every
        self._made += 1
        if driver >= TRIMMED and not often:
            give_back()
            driver = resident_bytes() / self._limit
        if self._classic is None:
            return Shares(driver)
        if not often:
            from py4j.protocol import Py4JError

            self._known = Shares()
            with suppress(Py4JError, OSError):
                self._known = Shares(0.0, self._cache(), self._heap())
        return replace(self._known, driver=driver)

    def _cache(self) -> float:
        used = most = 0
        assert self._classic is not None
        statuses = self._classic.sparkContext._jsc.sc().getExecutorMemoryStatus().values().iterator()
        while statuses.hasNext():
            status = statuses.next()
            most += status._1()
            used += status._1() - status._2()
        return used / most if most else 0.0

    def _heap(self) -> float:
        """Return the share in use; old garbage, as left by a job that has ended, must not count as short memory."""
        self._uncollected += 1
        share = self._old()
        if share >= self._bound and self._uncollected > COLLECTED_EVERY:
            self._uncollected = 0
            self._collect()
            share = self._old()
        return share

    def _collect(self) -> None:
        self._java("System").gc()

    def _old(self) -> float:
        used = sum(pool.getCollectionUsage().getUsed() for pool in self._pools)
        return float(used / self._java("Runtime").getRuntime().maxMemory())

    def _java(self, name: str) -> Any:
        assert self._classic is not None
        return java_class(self._classic, f"java.lang.{name}")


@functools.lru_cache(maxsize=1)
def _old_pools(factory: Any) -> tuple[Any, ...]:
    """Return what tells the size of Java's old objects; a Java process has the same for good."""
    heap = [pool for pool in factory.getMemoryPoolMXBeans() if pool.getType().name() == "HEAP"]
    collected = [pool for pool in heap if pool.getCollectionUsage() is not None]
    return tuple(pool for pool in collected if "Eden" not in pool.getName() and "Survivor" not in pool.getName())


class MemoryWatch:
    """Measures memory now and then, and says when it is short.

    Args:
        bound: Share from which on memory is short; 1 for never.
        measure: Returns the shares of memory in use; None for no memory mode.
        note: Tells people.
    """

    def __init__(self, bound: float, measure: Callable[[], Shares] | None, note: Callable[[str], None]) -> None:
        self.shares = Shares()
        """At the last look."""
        self.mode = MemoryMode(bound)
        self._measure = measure if bound < 1 else None
        self._measured_at: Micros | None = None
        self._note = note

    @property
    def short(self) -> bool:
        """Whether memory is short, be it that the memory mode rests."""
        return self.mode.active or (self._measure is not None and self.shares.largest >= self.mode.enter)

    def look(self, now: Micros) -> None:
        """Measure memory, if it was not done just now; monotonic time."""
        if self._measure is None or (self._measured_at is not None and now < self._measured_at + LOOK):
            return
        self._measured_at, self.shares = now, self._measure()
        before, self.mode = self.mode, self.mode.observed(self.shares.largest, now)
        if self.mode.active and not before.active and before.rest_until is None:
            self._note(f"Memory is short ({self.shares}): the streams go first whose rows and windows free most of it.")


def give_back() -> None:
    """Give freed memory back to the system, where it can: else garbage would count as memory in use."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc only


def resident_bytes() -> int:
    """Return the resident memory of this process; its peak where the system does not tell the present."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        try:
            import resource
        except ImportError:  # Windows
            return 0
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


def default_limit() -> int:
    """Return half of the memory of the machine, or of its container where that is less."""
    found = []
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max" where there is no limit
            found.append(int(path.read_text()))
    return round(HALF * min(found)) if found else 4 << 30
