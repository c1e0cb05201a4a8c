"""What tasks give arrives as it was, whatever its size."""

import pytest

from transom.engine.execution.compressed import LARGE, compressed, decompressed


@pytest.mark.parametrize("data", [b"", b"c", b"p" * (LARGE - 1), bytes(LARGE), bytes(range(256)) * 4_000])
def test_bytes_arrive_as_they_were(data: bytes) -> None:
    assert bytes(decompressed(compressed(data))) == data


def test_large_ones_get_small() -> None:
    assert len(compressed(bytes(1 << 24))) < 1 << 20
