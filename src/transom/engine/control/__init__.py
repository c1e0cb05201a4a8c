"""Decisions from measurements while an application runs: order, memory, arrangement, tiers."""
