"""Azure's object store for a run of the tests: Microsoft's emulator, from npm once, ended with its input."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from tests.fetching import node_package
from tests.storage.child import running

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's own, which is no secret."""
MAIN = """
process.stdin.on("end", () => process.exit(0)).resume();
require("%s/dist/src/blob/main.js");
"""
OPTIONS = ("--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence", "--silent", "--blobPort", "0")


@contextmanager
def azure_server(directory: Path, container: str) -> Iterator[dict[str, str]]:
    """Run one with an empty container, and give the environment that says where it is.

    Raises:
        MissingError: It cannot be fetched.
    """
    main = directory / "main.js"
    main.write_text(MAIN % node_package("azurite", VERSION))
    with running(["node", str(main), *OPTIONS], directory, r"listens on.*?(http://\S+)") as url:
        _create(url, container)
        yield {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url, "AZURE_ALLOW_HTTP": "true"}


def _create(url: str, container: str) -> None:
    """Make a container, as `az storage container create` does."""
    now = formatdate(usegmt=True)
    version, place = "2021-08-06", f"/{ACCOUNT}/{container}"
    signed = f"PUT{12 * chr(10)}x-ms-date:{now}\nx-ms-version:{version}\n/{ACCOUNT}{place}\nrestype:container"
    mac = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()).decode()
    asked = urllib.request.Request(f"{url}{place}?restype=container", method="PUT")
    said = {"x-ms-date": now, "x-ms-version": version, "Authorization": f"SharedKey {ACCOUNT}:{mac}"}
    for name, value in said.items():
        asked.add_header(name, value)
    urllib.request.urlopen(asked).close()
