"""Azure's object store for a run of the tests: Microsoft's emulator, from npm once, ended with its input."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import subprocess
import urllib.request
from email.utils import formatdate
from pathlib import Path

from tests.fetching import node_package

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's own, which is no secret."""
MAIN = """
process.stdin.on("end", () => process.exit(0)).resume();
require("%s/dist/src/blob/main.js");
"""
OPTIONS = ("--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence", "--silent", "--blobPort", "0")


class Azurite:
    """One that runs, with nothing in it.

    Raises:
        MissingError: It cannot be fetched.
    """

    def __init__(self, directory: Path) -> None:
        (directory / "main.js").write_text(MAIN % node_package("azurite", VERSION))
        self._log = (directory / "log").open("wb")
        self._process = subprocess.Popen(
            ["node", str(directory / "main.js"), *OPTIONS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        said = next((line for line in self._process.stdout if "listens on" in line), "")
        found = re.search(r"http://\S+", said)
        assert found, (directory / "log").read_text()[-2000:]
        self.url = found[0]

    def create(self, container: str) -> None:
        """Make a container, as `az storage container create` does."""
        now = formatdate(usegmt=True)
        version, place = "2021-08-06", f"/{ACCOUNT}/{container}"
        signed = f"PUT{12 * chr(10)}x-ms-date:{now}\nx-ms-version:{version}\n/{ACCOUNT}{place}\nrestype:container"
        mac = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()).decode()
        asked = urllib.request.Request(f"{self.url}{place}?restype=container", method="PUT")
        said = {"x-ms-date": now, "x-ms-version": version, "Authorization": f"SharedKey {ACCOUNT}:{mac}"}
        for name, value in said.items():
            asked.add_header(name, value)
        urllib.request.urlopen(asked).close()

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()
