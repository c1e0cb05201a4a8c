"""Paths and URIs as users give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.collections.checkpointing import Recovery
from transom.errors import DefinitionError
from transom.storage.places import ObjectPath, place, spark_uri


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("/data/a b", "/data/a b"),
        ("/data/../b", "/b"),
        ("file:///data/a%20b", "/data/a b"),
        ("file:/data/a", "/data/a"),
        ("file://localhost/data/a", "/data/a"),
        ("S3://bucket/a//b/", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        (Path("s3://bucket/a"), "s3://bucket/a"),
        ("gs://bucket/a%20b/dt=2026-01-01", "gs://bucket/a%20b/dt=2026-01-01"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net/a"),
    ],
)
def test_what_is_meant(given: str | Path, meant: str) -> None:
    assert str(place(given, "here")) == meant
    assert isinstance(place(given, "here"), ObjectPath if "://" in meant else Path)


@pytest.mark.parametrize(
    "given",
    [
        "s3://key:a-secret@bucket/a",
        "s3://a-secret@bucket/a",
        "s3://bucket/a?access_key_id=k&secret=a-secret",
        "abfs://box:a-secret@account/a",
        "gs://bucket/a#token=a-secret",
        "ftp://user:a-secret@host/a?x=a-secret",
        "s3:///a",
        "s3://bucket/a/../b",
    ],
)
def test_what_is_refused_is_not_repeated_with_its_secrets(given: str) -> None:
    with pytest.raises(DefinitionError) as error:
        place(given, "here")
    assert "a-secret" not in str(error.value)
    assert error.value.remedy


def test_as_spark_reads_it() -> None:
    assert spark_uri(Path("/data/a")) == "/data/a"
    assert spark_uri(ObjectPath("s3://bucket", "a/b")) == "s3a://bucket/a/b"
    assert spark_uri(ObjectPath("gs://bucket", "a")) == "gs://bucket/a"


def test_as_a_path() -> None:
    path = ObjectPath("s3://bucket", "a/b.json")
    assert (path.name, path.suffix, str(path.parent)) == ("b.json", ".json", "s3://bucket/a")
    assert path.parent / "b.json" == path
    assert {path, path.parent / "b.json"} == {path}
    assert str(path.parent.parent) == "s3://bucket"
    assert path.absolute() is path


def test_checkpoints_of_datasets_hold_no_secrets_either() -> None:
    with pytest.raises(DefinitionError) as error:
        Recovery("1 minute", "s3://key:a-secret@bucket/a", policy="edge")
    assert "a-secret" not in str(error.value)
