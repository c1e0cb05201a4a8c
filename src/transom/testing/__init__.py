"""Suites that any source or sink must pass, for pytest; `transom.testing.SinkSuite` and `SourceSuite`."""

from transom.testing.sinks import SinkCase, SinkSuite

__all__ = ["SinkCase", "SinkSuite"]
