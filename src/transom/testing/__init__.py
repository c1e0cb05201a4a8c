"""Suites that any source or sink must pass, for pytest: `SinkSuite` and `SourceSuite`, and what they are given."""

from transom.testing.sinks import SinkCase, SinkSuite
from transom.testing.sources import SourceCase, SourceSuite

__all__ = ["SinkCase", "SinkSuite", "SourceCase", "SourceSuite"]
