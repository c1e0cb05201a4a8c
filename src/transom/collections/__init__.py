"""Datasets that come and go, kept together at their executors, and questions over them."""
