"""How many executors a cluster manager gives by itself, and how many at most, as the settings of Spark say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

INSTANCES, MOST_CORES, CORES = "spark.executor.instances", "spark.cores.max", "spark.executor.cores"


@dataclass(frozen=True)
class Grant:
    """What a cluster manager gives.

    YARN and Kubernetes give as many executors as `spark.executor.instances` says. A standalone cluster does not know
    that setting: it gives all for which it has cores and memory, up to `spark.cores.max`.
    """

    gives_all: bool = False
    """Whether it gives all that it has, unless it is told otherwise while the application runs."""
    stated: int | None = None
    """Executors that the settings ask for in the beginning; None if they say nothing."""
    bound: int | None = None
    """Executors that it gives at most; None if that does not follow from settings."""
    whole_workers: bool = False
    """Whether an executor has all cores of its machine, so that there are no more executors than machines."""


def granted(master: str, setting: Callable[[str], str | None]) -> Grant:
    """Return what the cluster manager of a Spark application gives.

    Args:
        master: Spark's master URL.
        setting: Returns what a setting of Spark says; None if it is not set.

    >>> granted("spark://head:7077", {"spark.cores.max": "9", "spark.executor.cores": "2"}.get).bound
    4
    """
    stated, most, cores = (_whole(setting(name)) for name in (INSTANCES, MOST_CORES, CORES))
    if not master.startswith(("spark://", "local-cluster[")):
        return Grant(stated=stated)
    return Grant(True, stated, most // cores if most and cores else None, cores is None)


def _whole(text: str | None) -> int | None:
    """Return a positive whole number; None for what is none, which Spark refuses by itself or passes over."""
    return int(text) if text and text.strip().isdecimal() and int(text) else None
