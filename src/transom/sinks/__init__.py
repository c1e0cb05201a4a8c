"""Sinks: where the results of queries go, each window once."""

from transom.sinks.base import Sink, WindowResults
from transom.sinks.calling import foreach
from transom.sinks.compaction import compact
from transom.sinks.databases import sqlite
from transom.sinks.directories import csv, json, parquet
from transom.sinks.inmemory import memory
from transom.sinks.lakes import delta
from transom.sinks.postgresql import postgres
from transom.sinks.printing import console
from transom.sinks.topics import kafka

__all__ = [
    "Sink",
    "WindowResults",
    "compact",
    "console",
    "csv",
    "delta",
    "foreach",
    "json",
    "kafka",
    "memory",
    "parquet",
    "postgres",
    "sqlite",
]
