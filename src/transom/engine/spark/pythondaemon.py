"""Spark's daemon of Python workers with PySpark as it is installed, and not from the archive that lies in it.

Spark puts that archive, of the very same files, before all else that Python looks in. What is in an archive is compiled
anew by each process that imports it: half a second before the first task, and a little in each worker.

A worker to which Spark listens no longer ends without a word: when a session is stopped, some of Spark's own workers
write a stack trace to the terminal, those that see their connection end before they are ended themselves.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

DAEMON = "spark.python.daemon.module"
_PYTHON = "spark.pyspark.python"


def daemon_settings(options: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a session whose workers import PySpark as it is installed; none where that is not certain.

    It is on a local master, if workers run this Python, and another process of it finds this package, too.

    Args:
        options: What the session starts with.
    """
    local = str(options.get("spark.master", "")).startswith("local")
    pythons = {str(each) for each in (options.get(_PYTHON), os.environ.get("PYSPARK_PYTHON")) if each}
    found = local and DAEMON not in options and pythons <= {sys.executable} and _is_found_by_others()
    return {DAEMON: __name__} if found else {}


def _is_found_by_others() -> bool:
    """Tell whether any process finds this package: it is installed, perhaps as a link, or named in PYTHONPATH."""
    places = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    links = [link for place in places for link in Path(place).glob("*.pth")]
    linked = [link.parent / line for link in links for line in link.read_text(errors="replace").splitlines() if line]
    named = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    found = [*map(Path, places), *linked, *map(Path, named)]
    return Path(__file__).resolve().parents[3] in [each.resolve() for each in found]


def archives_last(path: Sequence[str], home: str) -> list[str]:
    """Return where Python looks for modules, with the archives inside an installed PySpark behind all else.

    Args:
        path: Where it looks.
        home: The directory of the installed PySpark.

    >>> archives_last(["/app", "/s/pyspark/python/lib/pyspark.zip", "/spark/pyspark.zip", "/s"], "/s/pyspark")
    ['/app', '/spark/pyspark.zip', '/s', '/s/pyspark/python/lib/pyspark.zip']
    """
    archives = [each for each in path if each.endswith(".zip") and each.startswith(home + os.sep)]
    return [*(each for each in path if each not in archives), *archives]


def silent(worker: Callable[..., int]) -> Callable[..., int]:
    """Return a worker that ends as after an error, and says nothing, where nobody hears it any more."""

    def heard(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1

    return heard


def _installed() -> str | None:
    """Return the directory of the PySpark that is found where there are no archives."""
    found = PathFinder.find_spec("pyspark", [each for each in sys.path if not each.endswith(".zip")])
    return None if found is None or found.origin is None else os.path.dirname(found.origin)


if __name__ == "__main__":
    if (home := _installed()) is not None:
        sys.path[:] = archives_last(sys.path, home)
    from pyspark import daemon

    daemon.worker = silent(daemon.worker)
    daemon.manager()
