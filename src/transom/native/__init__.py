"""Rows read and evaluated with Arrow, without Spark: only where it is certain that Spark would do the same."""
