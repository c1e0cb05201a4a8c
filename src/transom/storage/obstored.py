"""Object stores through obstore: S3 and what speaks its protocol, Google Cloud Storage, Azure.

Where a store is and who we are is told by the environment, as its own tools are told (AWS_REGION, AWS_ENDPOINT_URL,
AWS_ALLOW_HTTP, AWS_ACCESS_KEY_ID, ..., GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_NAME, ...), or by the machine's
role.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from transom.storage.objects import Entry, Stat

_ALL = 1 << 40
"""More bytes than an object has."""
_RETRY_FOR = timedelta(seconds=30)
_STATUS = re.compile(r"status code: (\d{3}[A-Za-z ]*)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_BUCKET = {"NoSuchBucket": "bucket", "ContainerNotFound": "container"}
_QUERY = re.compile(r"\?[^\s\"')]*")


class Obstore:
    """The objects in one bucket or container.

    Args:
        url: The bucket without any key, as in s3://bucket.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        with _translated(url):
            self._store: Any = from_url(url, retry_config={"retry_timeout": _RETRY_FOR})

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return an object, or a part of it."""
        try:
            with _translated(f"{self._url}/{key}"):
                if length is None and not start:
                    return bytes(obstore.get(self._store, key).bytes())
                return bytes(
                    obstore.get_range(self._store, key, start=start, length=_ALL if length is None else length)
                )
        except FileNotFoundError:
            raise
        except OSError:  # also what begins behind the end is refused
            found = self.stat(key)
            if found is not None and found.st_size <= start:
                return b""
            raise

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Write an object; it replaces one that is there."""
        with _translated(f"{self._url}/{key}"):
            obstore.put(self._store, key, data)

    def put_new(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one, and tell whether it was written."""
        with _translated(f"{self._url}/{key}"):
            try:
                obstore.put(self._store, key, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def move(self, key: str, to: str) -> None:
        """Let the store copy an object, then remove it."""
        with _translated(f"{self._url}/{key}"):
            obstore.copy(self._store, key, to)
        self.remove(key)

    def stat(self, key: str) -> Stat | None:
        """Return size and time of an object; None when there is none."""
        try:
            with _translated(f"{self._url}/{key}"):
                found = obstore.head(self._store, key)
        except FileNotFoundError:
            return None
        return _stat(found["size"], found["last_modified"])

    def list(self, folder: str) -> list[Entry]:
        """Return objects and folders directly in a folder, by name."""
        with _translated(f"{self._url}/{folder}"):
            found = obstore.list_with_delimiter(self._store, folder)
        entries = [Entry(_last(prefix), None) for prefix in found["common_prefixes"]]
        entries += [Entry(_last(each["path"]), _stat(each["size"], each["last_modified"])) for each in found["objects"]]
        return sorted(entries, key=lambda entry: entry.name)

    def walk(self, folder: str) -> Iterator[Entry]:
        """Yield all objects below a folder, by key."""
        skipped = len(folder) + 1 if folder else 0
        with _translated(f"{self._url}/{folder}"):
            for some in obstore.list(self._store, folder, chunk_size=1000):
                for each in some:
                    yield Entry(each["path"][skipped:], _stat(each["size"], each["last_modified"]))

    def remove(self, *keys: str) -> None:
        """Remove objects, in S3 up to 1,000 with a request; nothing happens where there is none."""
        if not keys:
            return
        try:
            with _translated(f"{self._url}/{keys[0]}"):
                obstore.delete(self._store, list(keys))
        except FileNotFoundError:  # some stores say so, and leave the rest
            for key in keys if len(keys) > 1 else ():
                self.remove(key)

    def remove_folder(self, folder: str) -> None:
        """Remove all objects below a folder."""
        self.remove(*[f"{folder}/{entry.name}" for entry in self.walk(folder)])


def _last(key: str) -> str:
    return key.rstrip("/").rpartition("/")[2]


def _stat(size: int, modified: datetime) -> Stat:
    return Stat(size, round(modified.timestamp() * 1e6) * 1000)


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn errors of the store into OSError, in words without queries of URLs, which may hold keys."""
    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise
    except (BaseError, ValueError, FileNotFoundError) as error:
        code = _CODE.search(str(error))
        if code and code[1] in _NO_BUCKET:
            raise OSError(errno.EIO, f"the {_NO_BUCKET[code[1]]} does not exist", what) from None
        if isinstance(error, (NotFoundError, FileNotFoundError)):
            raise FileNotFoundError(errno.ENOENT, "there is no such object", what) from None
        if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
            raise PermissionError(errno.EACCES, f"the store does not let us: {_brief(error)}", what) from None
        raise OSError(errno.EIO, _brief(error), what) from None


def _brief(error: Exception) -> str:
    """Return what a person needs of an error, which is many lines and may name a URL with its query."""
    text = str(error)
    parts = [found[1].strip() for found in (_STATUS.search(text), _CODE.search(text)) if found]
    first = _QUERY.sub("", (text.splitlines() or [""])[0])[:200]
    return ", ".join(parts) if parts else first
