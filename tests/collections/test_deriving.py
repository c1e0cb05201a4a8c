"""What is missing of datasets, and what tasks do about it; without Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from transom.collections.datasets import Dataset, Recipe, with_ancestors
from transom.collections.deriving import Gap, Made, alike, common_schema, copying, executing, open_anywhere, strayed
from transom.engine.placed.files import PlacedFile
from transom.engine.placed.plain import plain
from transom.errors import CheckpointCorruptError, DefinitionError


@pytest.fixture(autouse=True)
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "executor"))


def written(path: Path, table: pa.Table, executor: str = "a") -> PlacedFile:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return PlacedFile(str(path), len(table), path.stat().st_size, executor, "")


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def plus(tables: list[pa.Table]) -> pa.Table:
    return pa.table(
        {"n": pa.array([sum(column) for column in zip(*(t["n"].to_pylist() for t in tables), strict=True)])}
    )


@pytest.fixture
def chain(tmp_path: Path) -> list[Dataset]:
    """A dataset with a frame; a sum of it with itself; a sum of both. Two partitions each."""
    frame: Any = object()
    source = Dataset("s", frame)
    source.files = [written(tmp_path / f"s{n}", numbers(n, 10)) for n in range(2)]
    double = Dataset("d", recipe=Recipe((source, source), plus), kind="d/ouble")
    double.files = [written(tmp_path / f"d{n}", numbers(2 * n, 20)) for n in range(2)]
    triple = Dataset("t", recipe=Recipe((double, source), plus))
    triple.files = [written(tmp_path / f"t{n}", numbers(3 * n, 30), "gone") for n in range(2)]
    return [source, double, triple]


def gap(chain: list[Dataset], *wanted: int, homes: tuple[str, str] = ("a", "a")) -> Gap:
    return Gap.of([chain[number] for number in wanted], homes, {"a", "b"})


def run(found: Gap, fresh: Any = None) -> dict[int, list[Made]]:
    programs = {number: found.program(number, fresh or {})[0] for number in found.missing}
    return dict(pickle.loads(executing([programs], "app", ("key",), check=False)(0)))


def test_what_is_there_is_not_made_again(chain: list[Dataset]) -> None:
    assert gap(chain, 0, 1).missing == {}
    found = gap(chain, 2)
    assert found.missing == {0: (chain[2],), 1: (chain[2],)}
    assert found.exchanged() == {}
    made = run(found)
    assert [open_anywhere(made[n][-1].file.path)["n"].to_pylist() for n in range(2)] == [[0, 30], [3, 30]]  # type: ignore[union-attr]


def test_a_chain_is_one_program_that_repairs_what_it_passes(chain: list[Dataset]) -> None:
    chain[1].files[1] = written(Path(chain[1].files[1].path), numbers(0), "gone")
    found = gap(chain, 2)
    steps, kept = found.program(1, {})
    assert [step.function is None for step in steps] == [True, False, False]
    assert list(kept.values()) == chain[1:]
    assert kept.keys() == {1, 2}
    assert run(found)[1][2].file is not None
    chain[1].files = []  # evicted: it is made, but not kept
    steps, kept = gap(chain, 2).program(1, {})
    assert (len(steps), list(kept.values())) == (3, [chain[2]])


def test_what_cannot_be_derived_is_exchanged_or_read_from_a_checkpoint(chain: list[Dataset], tmp_path: Path) -> None:
    chain[0].files, chain[1].files = [], []
    assert gap(chain, 2).exchanged() == {chain[0]: [0, 1]}
    sources = [[str(tmp_path / "d0"), str(tmp_path / "d1")]]
    ((copies, micros),) = pickle.loads(copying(sources, [f"file://{tmp_path}/copy"], [[0, 1]])(0))
    assert micros >= 0
    chain[1].truncate([copies[0], copies[1]])
    assert with_ancestors([chain[2]]) == chain, "its own parent is still needed"
    assert with_ancestors([chain[1]]) == [chain[1]]
    found = gap(chain, 2)
    assert found.exchanged() == {chain[0]: [0, 1]}
    fresh = {(chain[0], n): written(tmp_path / f"f{n}", numbers(n, 10)) for n in range(2)}
    made = run(found, fresh)
    assert open_anywhere(made[1][-1].file.path)["n"].to_pylist() == [3, 30]  # type: ignore[union-attr]


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "other"])
def test_a_checkpoint_that_is_not_what_was_written(
    chain: list[Dataset], tmp_path: Path, scheme: str, damage: str
) -> None:
    sources = [[str(tmp_path / "d0"), str(tmp_path / "d1")]]
    ((copies, _),) = pickle.loads(copying(sources, [f"{scheme}{tmp_path}/copy"], [[0, 1]])(0))
    one, other = (Path(copies[n].removeprefix("file://")) for n in range(2))
    assert open_anywhere(copies[0])["n"].to_pylist() == [0, 20]
    data = one.read_bytes()
    if damage == "remove":
        one.unlink()
    elif damage == "other":
        one.write_bytes(other.read_bytes())
    else:
        one.write_bytes(data[:-1] + (bytes([data[-1] ^ 1]) if damage == "flip" else b""))
    with pytest.raises(CheckpointCorruptError, match="missing or damaged"):
        open_anywhere(copies[0])


def test_parents_elsewhere_are_moved_first(chain: list[Dataset]) -> None:
    assert gap(chain, 2, homes=("b", "a")).away == ((chain[1], 0), (chain[0], 0))


def test_names_of_files_have_no_slash(chain: list[Dataset]) -> None:
    assert chain[1].name == f"d_ouble-{chain[1].number}"


def table(*keys: str | None) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.string()), "v": pa.nulls(len(keys), pa.int64())})


@pytest.mark.parametrize(
    ("made", "parents", "stray"),
    [
        (table("a", "b", "a"), [table("a"), table("b", "c")], None),
        (table("a", "d"), [table("a"), table("b")], ("d",)),
        (table(None), [table("a", None)], None),
        (table(None), [table("a")], (None,)),
        (table(), [table()], None),
        (table("a"), [table()], ("a",)),
        (pa.table({"k": [1]}), [table("a")], ("int64",)),
    ],
)
def test_keys_that_no_parent_has_are_found(made: pa.Table, parents: list[pa.Table], stray: Any) -> None:
    assert strayed(made, parents, ["k"]) == stray


def test_partitions_have_the_same_columns() -> None:
    one, other = numbers(1).schema, table("a").schema
    assert common_schema([Made(0.0, schema=one), Made(0.0, schema=one)]) == one
    with pytest.raises(DefinitionError, match="k string, v int64 for another"):
        common_schema([Made(0.0, schema=one), Made(0.0, schema=other)])
    with pytest.raises(DefinitionError, match=r"no good\. Do better"):
        common_schema([Made(0.0, wrong=("no good.", "Do better."))])


@pytest.mark.parametrize(
    ("kind", "plain_kind"),
    [
        (pa.int64(), pa.int64()),
        (pa.list_(pa.field("element", pa.int64(), False)), pa.list_(pa.int64())),
        (pa.large_list(pa.field("element", pa.int64(), False)), pa.large_list(pa.int64())),
        (pa.struct([pa.field("x", pa.int64(), False)]), pa.struct([("x", pa.int64())])),
        (pa.map_(pa.string(), pa.field("value", pa.int64(), False)), pa.map_(pa.string(), pa.int64())),
        (
            pa.list_(
                pa.field("element", pa.struct([pa.field("x", pa.list_(pa.field("y", pa.int64(), False)), False)]))
            ),
            pa.list_(pa.struct([("x", pa.list_(pa.int64()))])),
        ),
    ],
    ids=str,
)
def test_whether_values_may_be_null_is_not_said(kind: pa.DataType, plain_kind: pa.DataType) -> None:
    given = pa.schema([pa.field("c", kind, False, {"a": "b"})], {"c": "d"}).empty_table()
    expected = pa.schema([("c", plain_kind)])
    made = plain(given).schema
    assert made.equals(expected)
    assert (made.metadata, made.field("c").metadata) == (None, None)
    assert alike(given.schema, expected)
