"""Streams at run time: cuts, derived and joined streams, rows that are kept for joins."""
