"""Scheduling: which stream runs next; pure."""
