"""Kafka's client as sources and sinks use it."""
