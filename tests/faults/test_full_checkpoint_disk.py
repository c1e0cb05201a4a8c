"""The checkpoint's disk fills up during a run: a clear error, and after some space was freed the exact results."""

from __future__ import annotations

import pytest
from faults_app import at_step, make_app, results, write_input

from transom.errors import CheckpointFullError


@pytest.fixture
def disk(small_disk):
    return small_disk("1m")


def fill(disk):
    with open(disk / "ballast", "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass


@pytest.fixture(scope="module")
def expected(spark, tmp_path_factory):
    root = tmp_path_factory.mktemp("whole")
    write_input(root / "in")
    make_app(spark, root).run(once=True, close_all=True)
    return results(root)


@pytest.mark.parametrize(
    "step, number",
    [("job done", 1), ("cut logged", 4), ("before snapshot", 1)],
    ids=["partials", "dead letters", "snapshot"],
)
def test_a_full_disk(spark, tmp_path, disk, expected, step, number):
    write_input(tmp_path / "in")
    app = make_app(spark, tmp_path, disk / "checkpoint")
    app._on_step = at_step(step, number, lambda: fill(disk))
    with pytest.raises(CheckpointFullError, match=r"(?i)could not .*free some space"):
        app.run(once=True, close_all=True)
    (disk / "ballast").unlink()
    make_app(spark, tmp_path, disk / "checkpoint").run(once=True, close_all=True)
    assert results(tmp_path) == expected
