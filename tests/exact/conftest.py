"""Where the applications of these tests keep their partials, and how they make them."""

from __future__ import annotations

import pytest
from exact_helpers import Bench


@pytest.fixture(scope="session", autouse=True)
def tier(request: pytest.FixtureRequest) -> None:
    """Let all applications of these tests keep their partials in the tier of --tier, and make them in --lane.

    Those of all other tests make them as by default; these by Spark SQL, which judges what is not certain without it.
    """
    if (chosen := request.config.getoption("--tier")) is not None:
        Bench.defaults |= {"tier": chosen, "key_groups": 3}
    Bench.defaults |= {"lane": request.config.getoption("--lane")}
