"""The sliding windows that get a tree of spans, decided by what their windows hold at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from transom.model.time import Micros
from transom.model.window import WindowSpec
from transom.windows.aggregates.base import Slots
from transom.windows.cover import OVERHEAD
from transom.windows.partials import Partial
from transom.windows.reusable import PanedWindows, Span
from transom.windows.spans import Chain, Leaves, Merge, Read, SpanTree

MERGES = 4
"""Merges per result over a tree, each of about the keys of the window."""
GAIN = 1.5
"""A tree is begun when it promises to be this much cheaper, and given up when it is no cheaper: no flapping."""
SPREAD = 16
"""With more slides than this for each pane that holds rows, a tree would be made of nothing."""


@dataclass
class _Slide:
    """One kind of sliding window, and the last one that was asked for."""

    spec: WindowSpec
    leaves: Leaves
    length: int
    """Leaves in a window."""
    last: Micros | None = None
    """Start of the last window."""
    keys: int = 0
    """Keys in it."""
    chain: Chain | None = None

    def pays(self, cost: int, gain: float) -> bool:
        return cost > gain * MERGES * (self.keys + OVERHEAD)


class SlidingWindows:
    """Trees and chains for those sliding windows that are cheaper with them than by their cover.

    Args:
        read: Gives the merged rows of a span.
        merge: Merges partials.
    """

    def __init__(self, read: Read, merge: Merge) -> None:
        self._read = read
        self._merge = merge
        self._slides: dict[Micros, list[_Slide]] = {}
        self._trees: dict[Leaves, SpanTree] = {}

    def arrange(self, kinds: Iterable[PanedWindows]) -> None:
        """Keep what belongs to these windows, and forget the rest."""
        before = {slide.spec: slide for slides in self._slides.values() for slide in slides}
        self._slides = {}
        for spec in dict.fromkeys(kinds):
            if isinstance(spec, WindowSpec) and not spec.tumbling:
                leaves = Leaves.of(spec)
                slide = before.get(spec) or _Slide(spec, leaves, leaves.at(leaves.start(0) + spec.length))
                self._slides.setdefault(spec.length, []).append(slide)
        self._forget_trees()

    def _forget_trees(self) -> None:
        used = {slide.leaves for slides in self._slides.values() for slide in slides if slide.chain is not None}
        self._trees = {leaves: tree for leaves, tree in self._trees.items() if leaves in used}

    def _of(self, span: Span) -> _Slide | None:
        for slide in self._slides.get(span[1] - span[0], ()):
            if (span[0] - slide.spec.offset) % slide.spec.slide == 0:
                return slide
        return None

    def window(self, span: Span, final: bool, panes: int, cost: Callable[[], int]) -> tuple[bool, Partial | None]:
        """Return whether a span is a window that a tree serves, and its rows.

        Args:
            span: The window.
            final: Whether no rows are expected any more, so that later windows may build on it.
            panes: Panes of the window that hold rows.
            cost: Returns what they cost.
        """
        slide = self._of(span)
        if slide is None:
            return False, None
        if slide.chain is not None and not slide.pays(cost(), 1.0):
            slide.chain = None
            self._forget_trees()
        if slide.chain is None:
            overlaps = slide.last is not None and 0 < span[0] - slide.last < slide.spec.length
            if not (final and overlaps and slide.length <= SPREAD * panes and slide.pays(cost(), GAIN)):
                return False, None
            tree = self._trees.setdefault(slide.leaves, SpanTree(slide.leaves, self._read, self._merge))
            slide.chain = Chain(tree, slide.length, self._merge)
        start = slide.leaves.at(span[0])
        return True, slide.chain.slide(start) if final else slide.chain.peek(start)

    def note(self, span: Span, keys: int) -> None:
        """Note how many keys a window turned out to hold, in the order of the windows."""
        slide = self._of(span)
        if slide is not None and (slide.last is None or span[0] >= slide.last):
            slide.last, slide.keys = span[0], keys

    def repair(self, late: Sequence[tuple[Micros, Partial]]) -> None:
        """Take rows into account that came for panes since the last time.

        Args:
            late: Start of a pane and its new rows.
        """
        by_leaves: dict[Leaves, Mapping[int, Sequence[Partial]]] = {}
        for leaves, tree in self._trees.items():
            changed: dict[int, list[Partial]] = {}
            for moment, rows in late:
                changed.setdefault(leaves.at(moment), []).append(rows)
            by_leaves[leaves] = changed = {leaf: rows for leaf, rows in changed.items() if leaf < tree.end}
            if changed:
                tree.repair(changed)
        for chain, leaves in self._chains():
            chain.repair(by_leaves[leaves])

    def _chains(self) -> list[tuple[Chain, Leaves]]:
        slides = (slide for slides in self._slides.values() for slide in slides)
        return [(slide.chain, slide.leaves) for slide in slides if slide.chain is not None]

    def holds(self, pane: Micros) -> bool:
        """Tell whether spans hold rows of a pane already."""
        return any(leaves.at(pane) < tree.end for leaves, tree in self._trees.items())

    def drop_before(self, moment: Micros) -> None:
        """Forget spans that hold rows before the moment."""
        for leaves, tree in self._trees.items():
            tree.drop_before(leaves.first_from(moment))

    def clear(self) -> None:
        """Forget all spans."""
        for slides in self._slides.values():
            for slide in slides:
                slide.chain = None
        self._trees.clear()

    def renumber(self, numbers: Slots) -> None:
        """Change the key ids, as `partials.renumbered` does."""
        for tree in self._trees.values():
            tree.renumber(numbers)
        for chain, _ in self._chains():
            chain.renumber(numbers)
