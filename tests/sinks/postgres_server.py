"""A PostgreSQL server of its own for tests and benchmarks: on a free port, in a new directory, ended with them."""

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

    password = "hunter2-secret"

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"

    @property
    def dsn_without_password(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def control(self, *words: str) -> None:
        bin_ = programs()
        assert bin_ is not None
        as_postgres(str(bin_ / "pg_ctl"), "-w", "-D", str(self.directory / "data"), *words)

    def start(self) -> None:
        self.control("-l", str(self.directory / "log"), "start")

    def stop(self) -> None:
        self.control("-m", "immediate", "stop")


def as_postgres(*command: str) -> None:
    """Run a command as a user that a server may run as."""
    done = subprocess.run([*_user(), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout.decode()}")


def _user() -> list[str]:
    """Return what a command of the server begins with: root may not run it."""
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


@contextmanager
def postgres_server() -> Iterator[Server]:
    """Start a server, which is stopped at the end, however this process ends."""
    bin_ = programs()
    assert bin_ is not None
    directory = Path(tempfile.mkdtemp(prefix="transom-postgres-"))
    data = directory / "data"
    with _stopped(bin_, directory):
        if os.geteuid() == 0:
            shutil.chown(directory, "postgres")
        as_postgres(str(bin_ / "initdb"), "-A", "trust", "--no-sync", "-E", "UTF8", "-U", "postgres", "-D", str(data))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with open(data / "postgresql.conf", "a") as file:
            file.write(f"port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\n")
            file.write("shared_buffers = 64MB\nmax_connections = 20\n")
        server = Server(directory, port)
        server.start()
        yield server


_STOP = 'cat >/dev/null; directory=$1; shift; "$@" >/dev/null 2>&1; rm -rf "$directory"'
"""Waits until standard input ends, as it does when the tests are killed; then stops a server and removes its files."""


@contextmanager
def _stopped(bin_: Path, directory: Path) -> Iterator[None]:
    """Stop the server of a directory at the end of the block, or of this process: another one waits for either."""
    stop = [str(bin_ / "pg_ctl"), "-w", "-D", str(directory / "data"), "-m", "immediate", "stop"]
    command = ["sh", "-c", _STOP, "sh", str(directory), *_user(), *stop]
    watching = subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", start_new_session=True)
    assert watching.stdin is not None
    try:
        yield
    finally:
        watching.stdin.close()
        watching.wait()
