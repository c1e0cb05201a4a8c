"""A server of S3 for tests and benchmarks: moto in a process of its own, which ends with this one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUCKET = "s3://transom"
SECRET = "a-secret-that-nobody-may-print"
_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
"""Says its port, and ends with its input, so with whoever started it, however that ends."""


def why_not() -> str | None:
    """Return why no server can be had; None if one can."""
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("obstore") is None:
        return "moto and obstore are not installed"
    return None


@contextmanager
def s3_server(log: Path) -> Iterator[dict[str, str]]:
    """Start a server that has `BUCKET`, and yield the variables of the environment that say where it is.

    Args:
        log: Where it writes what it has to say.
    """
    command = [sys.executable, "-W", "ignore", "-c", _SERVER]
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        port = server.stdout.readline().decode().strip()
        assert port, log.read_text()
        address = f"http://127.0.0.1:{port}"
        put = urllib.request.Request(f"{address}/{BUCKET.removeprefix('s3://')}", data=b"", method="PUT")
        put.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request")
        urllib.request.urlopen(put).close()
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
