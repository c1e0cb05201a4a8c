"""Every cut of every site is merged exactly once, whatever is lost, repeated, reordered or takes two ways; all ends."""

from __future__ import annotations

import pytest
from tests.widearea.losing import Losing
from tests.widearea.network import World
from tests.widearea.simulated_site import MS


def told(seeds: range, kind: type[World], ends: bool = True) -> None:
    for seed in seeds:
        world = kind(seed)
        there = world.story(trouble=12_000 * MS, patience=400_000 * MS)
        assert there, f"seed {seed}: something hangs"
        world.check()
        if ends:
            assert world.to_the_end(trouble=6_000 * MS, patience=400_000 * MS), f"seed {seed}: a run does not end"
            world.check()


@pytest.mark.parametrize("block", range(4))
def test_every_cut_is_merged_once(block: int) -> None:
    told(range(50 * block, 50 * block + 50), World, ends=False)


@pytest.mark.parametrize("block", range(2))
def test_all_runs_end(block: int) -> None:
    told(range(200 + 50 * block, 200 + 50 * block + 50), World)


@pytest.mark.parametrize("block", range(2))
def test_every_cut_is_merged_once_since_something_was_lost(block: int) -> None:
    told(range(30 * block, 30 * block + 30), Losing)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_all_runs_end_at_length(block: int) -> None:
    told(range(300 + 470 * block, 300 + 470 * block + 470), World)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_every_cut_is_merged_once_since_something_was_lost_at_length(block: int) -> None:
    told(range(60 + 500 * block, 60 + 500 * block + 500), Losing)
