"""What all tables of TOML jobs have in common that make rows of other rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from transom.jobs.keys import Keys

if TYPE_CHECKING:
    from transom.api.app import App


@dataclass(frozen=True)
class RowsSpec(ABC):
    """One table that makes rows of other rows: `[[join]]`, `[[lookup]]` and the like."""

    kind: ClassVar[str]
    """The name of such tables."""
    known: ClassVar[tuple[str, ...]]
    """The keys that they may have."""

    name: str
    """What queries, and other such tables, give as source."""

    @classmethod
    @abstractmethod
    def parse(cls, keys: Keys, sources: Sequence[str]) -> Self:
        """Return what a table describes.

        Args:
            keys: The table.
            sources: Names of what may be read.

        Raises:
            JobFileError: A key is missing or of the wrong type, or there is no such source.
        """

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """Names of what it reads."""

    @abstractmethod
    def add(self, app: App, rows: Mapping[str, Any]) -> Any:
        """Add it to an application, and return its rows.

        Args:
            app: The application.
            rows: The rows of what it reads, by name.
        """
