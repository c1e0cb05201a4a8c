"""An explanation: the streams, queries and operators that an application will run, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.tree import Tree


@dataclass(frozen=True)
class Explanation:
    """The explanation that `App.explain` returns; all of it is lists, dictionaries, texts and numbers.

    Printed it is a tree: under each stream what its micro-batches compute, and what becomes of it.
    """

    application: str
    """Name of the application."""
    streams: list[Mapping[str, Any]]
    """Each stream: `name`, `source`, `shares_source_with` (a stream or None), `event_time`, `watermark`,
    `scans_per_cut`, `lane` (`native` or `spark`) and `lane_why` (why it is Spark's), `queries` (`name`, `where`,
    `group_by`, `rows`, `windows`, `aggregates`, `results`, `fill`, `within`, `early`, `lateness`, `sink`), and
    `components`, the aggregations of its job (`group_by`, `panes`, `partials`, `tier`, `shared`, `key_sets`). `rows`
    says that the rows themselves are passed on."""
    graph: Mapping[str, Any]
    """The `operators` (map, compute, consolidate, join), the `edges` between them (`from`, `to`), and the `components`
    that they are fused into."""
    planning: Mapping[str, Any] = field(default_factory=dict)
    """What the application plans for itself while it runs: the settings `plan` and `max_executors`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the same as one dictionary that `json.dumps` takes."""
        return asdict(self)

    def __str__(self) -> str:
        """Return it as text."""
        from rich.console import Console

        console = Console(width=120, color_system=None, highlight=False, force_jupyter=False)
        with console.capture() as text:
            console.print(self)
        return text.get().rstrip("\n")

    def __rich__(self) -> Tree:
        """Return it as rich shows it."""
        from transom.engine.explain.picture import tree

        return tree(self.application, self.to_dict())
