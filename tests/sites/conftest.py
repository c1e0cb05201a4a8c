"""Sites that end with their test."""

from __future__ import annotations

import pytest
from mailing import Place


@pytest.fixture
def places():
    made: list[Place] = []

    def make(*args, **kwargs) -> Place:
        made.append(Place(*args, **kwargs))
        return made[-1]

    yield make
    for place in reversed(made):
        place.mail.end()
