"""Folders in the stores that tests have: the S3 and the HDFS of `tests/servers.py`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest

from transom.storage.places import ObjectPath

_numbers = itertools.count(1)


@pytest.fixture
def hdfs_place(hdfs: str) -> Callable[[], ObjectPath]:
    """Make a new folder in the small HDFS."""
    return lambda: ObjectPath(hdfs, f"tests/folder-{next(_numbers)}")


@pytest.fixture
def s3_place(s3: str) -> Callable[[], ObjectPath]:
    """Make a new folder in the bucket of the server."""
    return lambda: ObjectPath("s3://transom", f"folder-{os.getpid()}-{next(_numbers)}")
