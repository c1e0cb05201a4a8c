"""Transom: many windowed streaming queries with stated latency limits on Apache Spark, exact, from PySpark."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from transom.public import *  # noqa: F403
    from transom.public import __all__ as __all__
else:
    # Importing all takes a second of processor time, and workers, which import single modules, would pay it each.
    def __getattr__(name: str) -> object:
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module 'transom' has no attribute {name!r}")
        public = import_module("transom.public")
        globals().update({each: getattr(public, each) for each in ["__all__", *public.__all__]})
        try:
            return globals()[name]
        except KeyError:
            raise AttributeError(f"module 'transom' has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        from transom.public import __all__ as names

        return sorted({*globals(), *names})
