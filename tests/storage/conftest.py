"""Folders in the stores of objects that tests run against."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.storage.memory_objects import memory_place

from transom.storage.places import ObjectPath

STORES = ["memory", "s3", *(pytest.param(name, marks=pytest.mark.slow) for name in ("hdfs", "azure"))]


@pytest.fixture(params=STORES)
def folder(request: pytest.FixtureRequest) -> ObjectPath:
    """A new folder in each kind of store."""
    if request.param == "memory":
        return memory_place()[1]
    make: Callable[[], ObjectPath] = request.getfixturevalue(f"{request.param}_place")
    return make()
