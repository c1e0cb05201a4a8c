"""Every cut of every site is merged exactly once, whatever is lost, repeated, reordered or takes two ways."""

from __future__ import annotations

import pytest
from tests.widearea.network import World
from tests.widearea.simulated_site import MS


def told(seeds: range) -> None:
    for seed in seeds:
        world = World(seed)
        there = world.story(trouble=12_000 * MS, patience=400_000 * MS)
        assert there, f"seed {seed}: something hangs"
        world.check()


@pytest.mark.parametrize("block", range(6))
def test_every_cut_is_merged_once(block: int) -> None:
    told(range(50 * block, 50 * block + 50))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_every_cut_is_merged_once_at_length(block: int) -> None:
    told(range(300 + 470 * block, 300 + 470 * block + 470))
