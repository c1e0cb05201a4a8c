"""Partials over a wide area: pure decisions about the way they travel, and how often."""
