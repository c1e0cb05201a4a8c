"""What Transom asks of a store of objects: each store passes the same tests."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from tests.storage.memory_objects import Faults, memory_place

from transom.storage.durable import create_once, names_in, read_part, remove_tree, replacing, writing
from transom.storage.places import ObjectPath, located


def test_an_object_is_what_was_put_last(folder: ObjectPath) -> None:
    path = folder / "a.json"
    path.put(b"first")
    path.put(b"second")
    assert path.read_bytes() == b"second"
    assert path.stat().st_size == 6
    assert path.exists()
    path.unlink()
    path.unlink()
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        path.read_bytes()
    with pytest.raises(FileNotFoundError):
        path.stat()


@pytest.mark.parametrize("store", ["s3", pytest.param("azure", marks=pytest.mark.slow)])
def test_a_bucket_that_does_not_exist_is_no_object_that_does_not(store: str, request: pytest.FixtureRequest) -> None:
    """What is asked for is not simply missing there: nobody may go on as if a file were new."""
    there = str(request.getfixturevalue(f"{store}_place")())
    path = located(there.replace("//transom", "//nowhere")) / "a"
    for ask in (path.read_bytes, lambda: path.put(b""), lambda: path.put_new(b""), lambda: path.parent.entries()):
        with pytest.raises(OSError, match=r"(bucket|container) does not exist"):
            ask()


def test_what_moves_replaces_what_is_there(folder: ObjectPath) -> None:
    (folder / "a b" / "c=x%3Ay").put(b"new")
    (folder / "d").put(b"old")
    (folder / "a b" / "c=x%3Ay").move_to(folder / "d")
    assert (folder / "d").read_bytes() == b"new"
    (folder / "d").move_to(folder / "e/c=x%3Ay")
    assert [entry.name for entry in folder.walk()] == ["e/c=x%3Ay"]
    with pytest.raises(FileNotFoundError):
        (folder / "d").move_to(folder / "e" / "c=x%3Ay")
    assert (folder / "e" / "c=x%3Ay").read_bytes() == b"new"


def test_a_folder_goes_with_all_that_is_below(folder: ObjectPath) -> None:
    for name in ("a/b/c", "a/d", "ab/c", "e"):
        (folder / name).put(b"x")
    remove_tree(folder / "a")
    assert [entry.name for entry in folder.entries()] == ["ab", "e"]
    remove_tree(folder / "a")


def test_many_are_removed_together_also_those_that_are_not_there(folder: ObjectPath) -> None:
    names = [f"sub/{n}" for n in range(30)]
    for name in names[::2]:
        (folder / name).put(b"")
    (folder / "kept").put(b"")
    folder.remove(names)
    folder.remove([])
    assert [entry.name for entry in folder.walk()] == ["kept"]


def test_a_part_ends_where_the_object_does(folder: ObjectPath) -> None:
    path = folder / "a"
    path.put(b"0123456789")
    assert read_part(path, 2, 3) == b"234"
    assert read_part(path, 8, 5) == b"89"
    assert read_part(path, 12, 5) == b""
    assert path.read_part(7) == b"789"


def test_of_many_that_put_where_nothing_is_one_succeeds(folder: ObjectPath) -> None:
    path = folder / "claim"
    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(lambda n: path.put_new(b"writer %d" % n), range(8)))
    assert sum(won) == 1
    assert path.read_bytes() == b"writer %d" % won.index(True)


def test_a_folder_shows_what_is_directly_in_it(folder: ObjectPath) -> None:
    names = ["b.json", "a.json", "sub/c", "sub/deep/d", "with space %20 é+&.json", "key=1/x"]
    for name in names:
        folder.joinpath(*name.split("/")).put(name.encode())
    (folder.parent / (folder.name + "-beside")).put(b"")
    shown = {entry.name: entry.stat and entry.stat.st_size for entry in folder.entries()}
    assert shown == {"a.json": 6, "b.json": 6, "key=1": None, "sub": None, names[4]: len(names[4].encode())}
    assert sorted(names_in(folder)) == sorted(shown)
    assert {entry.name for entry in folder.walk()} == set(names)
    assert (folder / names[4]).read_bytes() == names[4].encode()
    assert (folder / "sub").is_dir()
    assert not (folder / "nothing").is_dir()
    assert (folder / "nothing").entries() == []
    assert {path.name for path in folder.iterdir()} == set(shown)


def test_what_is_written_is_there_at_the_end_or_not_at_all(folder: ObjectPath) -> None:
    with replacing(folder / "a") as file:
        file.write(b"whole")
        assert not (folder / "a").exists()
    with suppress(ZeroDivisionError), replacing(folder / "a") as file:
        file.write(b"half")
        file.write(b"%d" % (1 // 0))
    assert (folder / "a").read_bytes() == b"whole"
    with pytest.raises(FileExistsError), writing(folder / "a", new=True) as file:
        file.write(b"new")
    create_once(folder / "a", b"other")
    create_once(folder / "b", b"first")
    assert [(folder / name).read_bytes() for name in "ab"] == [b"whole", b"first"]


def test_large_objects(folder: ObjectPath) -> None:
    content = bytes(range(256)) * (50 << 10)
    with replacing(folder / "large") as file:
        file.write(content)
    assert (folder / "large").read_bytes() == content


def test_a_place_goes_to_other_processes(folder: ObjectPath) -> None:
    (folder / "a").put(b"content")
    assert pickle.loads(pickle.dumps(folder / "a")).read_bytes() == b"content"


@pytest.mark.parametrize("seed", range(20))
def test_a_put_that_failed_and_happened_is_ours(seed: int) -> None:
    _, folder = memory_place(Faults(seed, refused=0.1, lost=0.4))
    for n in range(50):
        try:
            won = (folder / str(n)).put_new(b"mine")
        except OSError:
            continue
        assert won
        with suppress(OSError):
            assert not (folder / str(n)).put_new(b"theirs")
