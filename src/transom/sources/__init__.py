"""Sources: where the rows of a stream come from."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transom.sources.base import Source
    from transom.sources.filesets.factory import files, text
    from transom.sources.generated import generator
    from transom.sources.inmemory import memory
    from transom.sources.lakes import delta
    from transom.sources.topics.factory import kafka
else:
    # Workers import the contract only, and would pay for all kinds of sources each.
    _PLACES = {
        "Source": "base",
        "files": "filesets.factory",
        "text": "filesets.factory",
        "generator": "generated",
        "memory": "inmemory",
        "delta": "lakes",
        "kafka": "topics.factory",
    }

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module 'transom.sources' has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(f"transom.sources.{_PLACES[name]}"), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = ["Source", "delta", "files", "generator", "kafka", "memory", "text"]
