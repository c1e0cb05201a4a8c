"""Sources: where the rows of a stream come from."""

from transom.sources.base import Source
from transom.sources.filesets.factory import files, text
from transom.sources.generated import generator
from transom.sources.inmemory import memory
from transom.sources.lakes import delta
from transom.sources.topics.factory import kafka

__all__ = ["Source", "delta", "files", "generator", "kafka", "memory", "text"]
