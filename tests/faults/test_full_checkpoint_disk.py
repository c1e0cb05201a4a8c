"""The checkpoint's disk fills up during a run: a clear error, and after some space was freed the exact results."""

from __future__ import annotations

import pytest
from faults_app import at_step, make_app, results, write_input

from transom.engine.spark import deadletters
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


def stops_and_goes_on(spark, root, disk, expected, app):
    with pytest.raises(CheckpointFullError, match=r"(?i)could not .*free some space"):
        app.run(once=True, close_all=True)
    (disk / "ballast").unlink()
    make_app(spark, root, disk / "checkpoint").run(once=True, close_all=True)
    assert results(root) == expected


@pytest.mark.parametrize(
    "step", ["job done", pytest.param("before snapshot", marks=pytest.mark.slow)], ids=["partials", "snapshot"]
)
def test_a_full_disk(spark, tmp_path, disk, expected, step):
    write_input(tmp_path / "in")
    app = make_app(spark, tmp_path, disk / "checkpoint")
    app._on_step = at_step(step, 1, lambda: fill(disk))
    stops_and_goes_on(spark, tmp_path, disk, expected, app)


@pytest.mark.slow
def test_a_full_disk_for_dead_letters(spark, tmp_path, disk, expected, monkeypatch):
    """It fills on the thread of the job, which is where they are written: steps of the loop come earlier or later."""
    write, on_step = deadletters.write_dead_letters, at_step("dead letters", 1, lambda: fill(disk))

    def watched(*args, **options):
        on_step("dead letters")
        return write(*args, **options)

    monkeypatch.setattr(deadletters, "write_dead_letters", watched)
    write_input(tmp_path / "in")
    stops_and_goes_on(spark, tmp_path, disk, expected, make_app(spark, tmp_path, disk / "checkpoint"))
