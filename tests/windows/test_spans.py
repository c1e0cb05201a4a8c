"""The tree of spans and the chains over it, against merging all leaves."""

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import COUNT, PRIMITIVES

from transom.model.window import WindowSpec
from transom.windows import spans as module
from transom.windows.partials import Partial, merge
from transom.windows.spans import Chain, Leaves, SpanTree

KEYS = 64
TYPES = {COUNT: PRIMITIVES[COUNT]}


def partial(keys, count=1):
    ids = np.unique(np.array(sorted(keys), np.int64))
    return Partial(ids, {COUNT: {"count": np.full(len(ids), count, np.int64)}})


class Panes:
    """Leaves of one microsecond as a dictionary, and the number of merges."""

    def __init__(self, held):
        self.held = dict(held)
        self.merges = 0
        self.tree = SpanTree(Leaves(1, 0, 0), lambda start, end: self.held.get(start), self.merge)

    def merge(self, parts):
        self.merges += len(parts) - 1
        return merge(parts, TYPES, KEYS)

    def late(self, chains, leaf, rows):
        self.held[leaf] = merge([self.held[leaf], rows], TYPES, KEYS) if leaf in self.held else rows
        self.tree.repair({leaf: [rows]} if leaf < self.tree.end else {})
        for chain in chains:
            chain.repair({leaf: [rows]})

    def naive(self, start, end):
        parts = [self.held[leaf] for leaf in range(start, end) if leaf in self.held]
        return dict(rows(merge(parts, TYPES, KEYS))) if parts else {}


def rows(part):
    return [] if part is None else zip(part.ids.tolist(), part.states[COUNT]["count"].tolist(), strict=True)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_window_is_the_merge_of_its_leaves(data):
    draw = data.draw
    first = draw(st.integers(-70, 70))
    keys = st.sets(st.integers(0, 7), min_size=1, max_size=4)
    panes = Panes({k: partial(s) for k, s in draw(st.dictionaries(st.integers(first, first + 120), keys)).items()})
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=2))
    chains = [Chain(panes.tree, length, panes.merge) for length in lengths]
    at = first
    dropped = first
    keep, overhead = draw(st.sampled_from([(0.75, 512), (0.75, 0), (0.0, 0)]))
    with mock.patch.object(module, "KEEP", keep), mock.patch.object(module, "OVERHEAD", overhead):
        for _ in range(draw(st.integers(1, 25))):
            action = draw(st.sampled_from(["slide", "slide", "slide", "late", "peek", "drop", "jump"]))
            if action in ("slide", "jump"):
                at += draw(st.integers(0, 2) if action == "slide" else st.integers(0, 90))
                for chain, length in zip(chains, lengths, strict=True):
                    assert dict(rows(chain.slide(at))) == panes.naive(at, at + length)
            elif action == "late":
                panes.late(chains, draw(st.integers(dropped, at + 40)), partial(draw(keys), 100))
            elif action == "peek":
                start = draw(st.integers(dropped, at + 60))
                for chain, length in zip(chains, lengths, strict=True):
                    assert dict(rows(chain.peek(start))) == panes.naive(start, start + length)
            else:
                dropped = draw(st.integers(dropped, at)) if at > dropped else dropped
                panes.held = {leaf: part for leaf, part in panes.held.items() if leaf >= dropped}
                panes.tree.drop_before(dropped)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 30, 60, 63, 64, 100, 511, 512, 600])
def test_in_order_a_result_takes_four_merges_on_average_and_two_log_n_at_worst(length):
    panes = Panes({leaf: partial([leaf % 3]) for leaf in range(8 * length + 40)})
    chain = Chain(panes.tree, length, panes.merge)
    chain.slide(0)
    counts = []
    for start in range(1, 7 * length + 40):
        before = panes.merges
        chain.slide(start)
        panes.tree.drop_before(start)
        counts.append(panes.merges - before)
    assert dict(rows(chain.slide(start))) == panes.naive(start, start + length)
    assert sum(counts) <= 4 * len(counts)
    assert max(counts) <= 2 * math.log2(length) + 2
    assert len(panes.tree) <= 2 * length + 2


@pytest.mark.parametrize("length", [30, 64, 600])
def test_a_late_record_costs_logarithmic_merges(length):
    panes = Panes({leaf: partial([leaf % 3]) for leaf in range(4 * length)})
    chain = Chain(panes.tree, length, panes.merge)
    for start in range(length + length // 3):
        chain.slide(start)
    for leaf in range(start, start + length):
        panes.merges = 0
        panes.late([chain], leaf, partial([5]))
        assert panes.merges <= 2 * math.log2(length) + 2
    assert dict(rows(chain.slide(start))) == panes.naive(start, start + length)


def test_late_rows_of_many_leaves_are_merged_once_per_node():
    panes = Panes({leaf: partial([leaf % 3]) for leaf in range(200)})
    chain = Chain(panes.tree, 64, panes.merge)
    for start in range(80):
        chain.slide(start)
    late = {leaf: [partial([5])] for leaf in range(80, 140)}
    panes.held.update({leaf: merge([panes.held[leaf], *parts], TYPES, KEYS) for leaf, parts in late.items()})
    panes.merges = 0
    panes.tree.repair(late)
    chain.repair(late)
    assert panes.merges <= 4 * len(late)
    assert dict(rows(chain.slide(80))) == panes.naive(80, 144)


def test_spans_over_keys_that_do_not_repeat_are_kept_every_third_level():
    panes = Panes({leaf: partial(range(leaf % 8 * 8, leaf % 8 * 8 + 8)) for leaf in range(100)})
    chain = Chain(panes.tree, 16, panes.merge)
    with mock.patch.object(module, "OVERHEAD", 0):
        for start in range(64):
            assert dict(rows(chain.slide(start))) == panes.naive(start, start + 16)
    kept = [len(nodes) for nodes in panes.tree._nodes]
    assert kept == [79, 0, 0, 9, 4]


def test_a_long_silence_costs_nothing():
    panes = Panes({leaf: partial([1]) for leaf in (0, 5, 10**12)})
    chain = Chain(panes.tree, 10, panes.merge)
    assert dict(rows(chain.slide(0))) == {1: 2}
    assert dict(rows(chain.slide(10**12 - 3))) == {1: 1}


@given(st.integers(1, 30), st.integers(1, 90), st.integers(0, 40), st.integers(-500, 500))
def test_leaves_are_the_spans_between_the_edges_of_the_windows(slide, length, offset, moment):
    slide, length = slide * 1000, max(slide, length) * 1000
    spec = WindowSpec(length, slide, offset * 1000)
    leaves = Leaves.of(spec)
    edges = sorted({spec.offset + k * slide + end for k in range(-700, 700) for end in (0, length)})
    moment *= 1000
    leaf = leaves.at(moment)
    assert leaves.start(leaf) == max(edge for edge in edges if edge <= moment)
    assert leaves.start(leaf + 1) == min(edge for edge in edges if edge > moment)
    assert leaves.start(leaves.first_from(moment)) == min(edge for edge in edges if edge >= moment)
