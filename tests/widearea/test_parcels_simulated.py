"""Every cut of every site is merged exactly once, whatever is lost, repeated, reordered or takes two ways."""

from __future__ import annotations

import pytest
from tests.widearea.network import MS, World


def told(seed: int) -> None:
    world = World(seed)
    there = world.story(trouble=12_000 * MS, patience=400_000 * MS)
    world.check()
    assert there, f"seed {seed}: something hangs"


@pytest.mark.parametrize("seed", range(100))
def test_every_cut_is_merged_once(seed: int) -> None:
    told(seed)
