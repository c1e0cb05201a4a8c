"""Where the applications of these tests keep their partials, and how they make them."""

from __future__ import annotations

import pytest
from exact_helpers import Bench


@pytest.fixture(scope="session", autouse=True)
def tier(request: pytest.FixtureRequest) -> None:
    """Let all applications of these tests keep their partials in the tier of --tier, and make them in --lane."""
    if (chosen := request.config.getoption("--tier")) is not None:
        Bench.defaults |= {"tier": chosen, "key_groups": 3}
    if (chosen := request.config.getoption("--lane")) is not None:
        Bench.defaults |= {"lane": chosen}
