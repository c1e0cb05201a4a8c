"""Benchmarks: one module per claim; see README.md for every baseline and figure."""
