"""A PostgreSQL server of its own for tests and benchmarks: on a free port, in a new directory, stopped at the end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CANDIDATES = [
    *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
    Path("/usr/bin"),
    Path("/usr/local/bin"),
]


def programs() -> Path | None:
    """Return where initdb and pg_ctl are; None where PostgreSQL is not installed."""
    return next((path for path in CANDIDATES if (path / "initdb").exists() and (path / "pg_ctl").exists()), None)


def why_not() -> str | None:
    """Return why no server can be had; None if one can."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        return f"psycopg is not installed: {error}"
    return None if programs() else "PostgreSQL is not installed: no initdb and pg_ctl in /usr/lib/postgresql/*/bin"


class Server:
    """A server that runs."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory, self.port = directory, port

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres:hunter2-secret@127.0.0.1:{self.port}/postgres"

    def control(self, *words: str) -> None:
        bin_ = programs()
        assert bin_ is not None
        as_postgres(str(bin_ / "pg_ctl"), "-w", "-D", str(self.directory / "data"), *words)

    def start(self) -> None:
        self.control("-l", str(self.directory / "log"), "start")

    def stop(self) -> None:
        self.control("-m", "immediate", "stop")


def as_postgres(*command: str) -> None:
    """Run a command as a user that a server may run as: root may not."""
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    done = subprocess.run([*user, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout.decode()}")


@contextmanager
def postgres_server() -> Iterator[Server]:
    """Start a server, and stop it at the end."""
    directory = Path(tempfile.mkdtemp(prefix="transom-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres")
    bin_ = programs()
    assert bin_ is not None
    try:
        data = directory / "data"
        as_postgres(str(bin_ / "initdb"), "-A", "trust", "--no-sync", "-E", "UTF8", "-U", "postgres", "-D", str(data))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with open(data / "postgresql.conf", "a") as file:
            file.write(f"port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\n")
            file.write("shared_buffers = 64MB\nmax_connections = 20\n")
        server = Server(directory, port)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
