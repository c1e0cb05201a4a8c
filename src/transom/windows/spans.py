"""Sliding windows with many overlaps: a dyadic tree of spans, and chains of cumulative merges over it.

Two stacks give a sliding result in amortised O(1) merges without an inverse, but need panes that never change and
take O(n) merges at worst. Here the back stack is made of the nodes of a tree instead of single panes, so that no result
takes more than about 2 log2 n merges, and a late record changes O(log n) nodes and links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from transom.model.time import Micros
from transom.model.window import WindowSpec
from transom.windows.aggregates.base import Slots
from transom.windows.cover import OVERHEAD
from transom.windows.partials import Partial, renumbered

KEEP = 0.75
"""A node is kept when it costs at most this share of the parts that it is made of: a node over keys that hardly repeat
takes memory and saves nothing."""
_MOST_PARTS = 8
"""A node of as many parts is kept in any case, so that no result takes many more merges."""
_RETRY = 16
"""At a level whose nodes were not worth keeping, every so many are tried again."""

Merge = Callable[[Sequence[Partial]], Partial]
Read = Callable[[Micros, Micros], "Partial | None"]
"""Returns the merged rows of a span [start, end), None without rows."""
Late = Mapping[int, Sequence[Partial]]
"""Rows that came for leaves that are in spans already, by leaf."""


@dataclass(frozen=True)
class Leaves:
    """The spans between neighbouring edges of a sliding window, numbered by integers; microseconds.

    One leaf per slide, or two when the slide does not divide the length. A leaf can hold several panes of a finer grid.
    """

    slide: Micros
    offset: Micros
    rest: Micros
    """Length modulo slide: where in each slide windows end; 0 if where others start."""

    @classmethod
    def of(cls, spec: WindowSpec) -> Leaves:
        """Return the leaves of some windows."""
        return cls(spec.slide, spec.offset, spec.length % spec.slide)

    def at(self, moment: Micros) -> int:
        """Return the leaf that holds the moment."""
        slides, within = divmod(moment - self.offset, self.slide)
        return 2 * slides + (within >= self.rest) if self.rest else slides

    def start(self, leaf: int) -> Micros:
        """Return the start of a leaf, which is the end of the one before."""
        if not self.rest:
            return self.offset + leaf * self.slide
        slides, second = divmod(leaf, 2)
        return self.offset + slides * self.slide + second * self.rest

    def first_from(self, moment: Micros) -> int:
        """Return the first leaf that starts at the moment or later."""
        leaf = self.at(moment)
        return leaf if self.start(leaf) >= moment else leaf + 1


class SpanTree:
    """Merged spans of 2^level leaves, beginning at multiples of 2^level.

    A node is kept when it saves something or has many parts, else it stands for its parts. Leaves outside of those
    taken in are read when asked for. One tree serves all windows with the same leaves.

    Args:
        leaves: The leaves.
        read: Gives the rows of a leaf.
        merge: Merges partials.
    """

    def __init__(self, leaves: Leaves, read: Read, merge: Merge) -> None:
        self.leaves = leaves
        self.begin = self.end = 0
        """Leaves taken in: [begin, end)."""
        self._read = read
        self._merge = merge
        self._nodes: list[dict[int, Partial | None]] = [{}]
        self._ratios: list[float] = [0.0]
        """Last known cost of a node over that of its parts, per level."""

    def grow(self, levels: int) -> None:
        """Have nodes up to a level."""
        while len(self._nodes) <= levels:
            self._nodes.append({})
            self._ratios.append(0.0)

    def extend(self, start: int, end: int) -> None:
        """Take in the leaves up to `end`, for windows from the leaf `start` on; one merge per leaf, amortised."""
        if start > self.end or self.begin == self.end:
            self._nodes = [{} for _ in self._nodes]
            self.begin = self.end = start
        for leaf in range(self.end, end):
            self._nodes[0][leaf] = self._leaf(leaf)
            level, index = 0, leaf
            while index & 1 and level + 1 < len(self._nodes):
                level, index = level + 1, index >> 1
                if index << level < self.begin:
                    break
                self._build(level, index)
        self.end = max(self.end, end)

    def _leaf(self, leaf: int) -> Partial | None:
        return self._read(self.leaves.start(leaf), self.leaves.start(leaf + 1))

    def _build(self, level: int, index: int) -> None:
        parts = [*self._parts(level - 1, 2 * index), *self._parts(level - 1, 2 * index + 1)]
        if len(parts) < 2:
            self._nodes[level][index] = parts[0] if parts else None
            return
        needed = len(parts) >= _MOST_PARTS
        if self._ratios[level] > KEEP and index % _RETRY and not needed:
            return
        merged = self._merge(parts)
        self._ratios[level] = (len(merged) + OVERHEAD) / sum(len(part) + OVERHEAD for part in parts)
        if self._ratios[level] <= KEEP or needed:
            self._nodes[level][index] = merged

    def _parts(self, level: int, index: int) -> Iterator[Partial]:
        """Yield what makes up a node: itself if it is kept."""
        if index in self._nodes[level]:
            node = self._nodes[level][index]
        elif level:
            yield from self._parts(level - 1, 2 * index)
            yield from self._parts(level - 1, 2 * index + 1)
            return
        else:
            node = self._leaf(index)
        if node is not None:
            yield node

    def spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the fewest nodes, (level, index), that make up the leaves [start, end): at most 2 log2(end - start)."""
        while start < end:
            level = min((end - start).bit_length(), len(self._nodes)) - 1
            if start:
                level = min(level, (start & -start).bit_length() - 1)
            yield level, start >> level
            start += 1 << level

    def parts(self, start: int, end: int) -> list[Partial]:
        """Return what makes up the leaves [start, end)."""
        return [part for level, index in self.spans(start, end) for part in self._parts(level, index)]

    def repair(self, late: Late) -> None:
        """Merge late rows into the nodes that hold their leaves: log2 n merges for each leaf."""
        for level, nodes in enumerate(self._nodes):
            for index, rows in late.items():
                if index not in nodes:
                    continue
                node = nodes[index]
                nodes[index] = self._merge([*([node] if node else []), *rows]) if level else self._leaf(index)
            late = self._doubled(late)

    def _doubled(self, late: Late) -> dict[int, list[Partial]]:
        """Return the same rows by the nodes of twice the size, one part each."""
        grouped: dict[int, list[Partial]] = {}
        for index, rows in late.items():
            grouped.setdefault(index >> 1, []).extend(rows)
        return {index: [self._merge(rows)] for index, rows in grouped.items()}

    def drop_before(self, leaf: int) -> None:
        """Forget nodes that hold leaves before this one."""
        if leaf <= self.begin:
            return
        for level, nodes in enumerate(self._nodes):
            low, high = self.begin >> level, -(-leaf >> level)
            if high - low < len(nodes):
                for index in range(low, high):
                    nodes.pop(index, None)
            else:
                self._nodes[level] = {index: node for index, node in nodes.items() if index >= high}
        self.begin = leaf
        self.end = max(self.end, leaf)

    def renumber(self, numbers: Slots) -> None:
        """Change the key ids, as `partials.renumbered` does."""
        for nodes in self._nodes:
            for index, node in nodes.items():
                nodes[index] = node and renumbered(node, numbers)

    def __len__(self) -> int:
        """Return the number of nodes kept."""
        return sum(len(nodes) for nodes in self._nodes)


@dataclass
class _Link:
    """The leaves [start, end), and the merge of everything from `start` to where the chain is split."""

    start: int
    end: int
    rows: Partial | None


class Chain:
    """Results of a window that slides forward over a tree.

    A window [s, e) of n leaves is split at m, a multiple of the largest power of two B <= n, with m in (s, s + B]. The
    left half is a stack of nodes from s to m, each with the merge of everything from its start to m. When s enters a
    node, smaller nodes replace it: 1 merge per leaf amortised, log2 B at worst. The right half is one merge of [m, e)
    that grows by a leaf at a time. When s reaches m, the left half is the node [m, m + B), and the right one is made of
    at most log2 n nodes. With the tree's own merge per leaf and the one of left and right, a result in order takes at
    most 4 merges amortised and about 2 log2 n at worst, where the tree keeps its nodes.

    Args:
        tree: The tree.
        length: Leaves in a window, n.
        merge: Merges partials.
    """

    def __init__(self, tree: SpanTree, length: int, merge: Merge) -> None:
        self.tree = tree
        self.length = length
        levels = length.bit_length() - 1
        self._block = 1 << levels
        self._merge = merge
        self._start: int | None = None
        self._end = self._split = 0
        self._left: list[_Link] = []
        self._right: Partial | None = None
        tree.grow(levels)

    def peek(self, start: int) -> Partial | None:
        """Return the window that starts at a leaf, in whatever order; at most 2 log2 n merges, nothing is kept."""
        return self._merged(self.tree.parts(start, start + self.length))

    def slide(self, start: int) -> Partial | None:
        """Return the window that starts at a leaf; windows should come in order, some may be left out."""
        if self._start is not None and start < self._start:
            return self.peek(start)
        end = start + self.length
        self.tree.extend(start, end)
        if self._start is None or start >= self._split:
            self._split = start - start % self._block + self._block
            self._left = []
            self._push(start, self._split)
            self._right = self._merged(self.tree.parts(self._split, end))
        else:
            self._advance(start)
            self._right = self._merged([*self._held(self._right), *self.tree.parts(self._end, end)])
        self._start, self._end = start, end
        return self._merged([*self._held(self._left[-1].rows), *self._held(self._right)])

    def _advance(self, start: int) -> None:
        while self._left[-1].end <= start:
            self._left.pop()
        if self._left[-1].start < start:
            self._push(start, self._left.pop().end)

    def _push(self, start: int, end: int) -> None:
        for level, index in reversed(list(self.tree.spans(start, end))):
            low, high = index << level, (index + 1) << level
            below = self._held(self._left[-1].rows) if self._left else []
            self._left.append(_Link(low, high, self._merged([*self.tree.parts(low, high), *below])))

    def _merged(self, parts: Sequence[Partial]) -> Partial | None:
        return self._merge(parts) if parts else None

    @staticmethod
    def _held(part: Partial | None) -> list[Partial]:
        return [] if part is None else [part]

    def repair(self, late: Late) -> None:
        """Merge late rows into the links that hold their leaves: at most log2 n merges for each leaf."""
        if self._start is None:
            return
        waiting = sorted(((leaf, rows) for leaf, rows in late.items() if self._start <= leaf < self._end), reverse=True)
        right = [part for leaf, rows in waiting if leaf >= self._split for part in rows]
        if right:
            self._right = self._merge([*self._held(self._right), *right])
        inside = [(leaf, rows) for leaf, rows in waiting if leaf < self._split]
        fresh: list[Partial] = []
        for link in self._left:
            while inside and inside[0][0] >= link.start:
                fresh.extend(inside.pop(0)[1])
            if fresh:
                fresh = [self._merge(fresh)]
                link.rows = self._merge([*self._held(link.rows), *fresh])

    def renumber(self, numbers: Slots) -> None:
        """Change the key ids, as `partials.renumbered` does."""
        for link in self._left:
            link.rows = link.rows and renumbered(link.rows, numbers)
        self._right = self._right and renumbered(self._right, numbers)
