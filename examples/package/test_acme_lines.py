from __future__ import annotations

from pathlib import Path

import pytest
from acme_lines import lines, read_lines

from transom.testing import SinkCase, SinkSuite


class TestLines(SinkSuite):
    """The sink passes Transom's suite."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> SinkCase:
        place = tmp_path / "fares.txt"
        return SinkCase(make=lambda: lines(place), rows=lambda: read_lines(place))
