"""Who sites are to one another: certificates, and what Flight's two ends make of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transom.errors import DefinitionError

LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
_AROUND = 1 << 16
"""Bytes that Flight may put around a message."""
PING = 20_000
"""Milliseconds after which the end that connects asks whether the other one is there, if nothing comes from it."""


@dataclass(frozen=True)
class Identity:
    """What a site shows others: its certificate and key, and whose certificates it believes; all PEM."""

    chain: bytes
    key: bytes = field(repr=False)
    authority: bytes

    @classmethod
    def read(cls, chain: Path, key: Path, authority: Path) -> Identity:
        """Read it from files.

        Raises:
            DefinitionError: A file cannot be read.
        """
        try:
            return cls(chain.read_bytes(), key.read_bytes(), authority.read_bytes())
        except OSError as error:
            raise DefinitionError(
                f"{error.filename} cannot be read: {error.strerror}.",
                "Name files with the site's certificate, its key, and the certificate of the authority, as PEM.",
            ) from error


def plain(error: Exception) -> str:
    """Return the message of an error of Flight without what gRPC adds."""
    text = str(error).split(". gRPC client debug context")[0].split("Detail: ")[0].strip()
    return text.rpartition("last error: ")[2].removeprefix("Flight returned unavailable error, with message: ")


def check_address(what: str, address: str, identity: Identity | None) -> None:
    """Refuse what is no address, or one elsewhere without TLS.

    Raises:
        DefinitionError: It is that.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise DefinitionError(f"{what}: {address!r} is no address.", "Write host and port, such as 10.0.0.7:7000.")
    if identity is None and host not in LOOPBACK:
        raise DefinitionError(
            f"{what}: {address} is not on this machine, and connections without TLS never leave it.",
            "Name certificate, key and authority; insecure = true is for addresses such as 127.0.0.1:7000.",
        )


def authority_options(identity: Identity | None) -> dict[str, Any]:
    """Return the options of a server that takes only peers with certificates of the authority."""
    if identity is None:
        return {}
    return {
        "tls_certificates": [(identity.chain, identity.key)],
        "verify_client": True,
        "root_certificates": identity.authority,
    }


def client_options(identity: Identity | None, name: str, most: int) -> dict[str, Any]:
    """Return the options of a client that shows its certificate, and takes only a peer of a name.

    Args:
        identity: Its certificate; None for no TLS.
        name: That of the peer's.
        most: Bytes of a message that it takes.
    """
    generic = [("grpc.keepalive_time_ms", PING), ("grpc.max_receive_message_length", most + _AROUND)]
    options: dict[str, Any] = {"generic_options": generic}
    if identity is not None:
        options |= {
            "tls_root_certs": identity.authority,
            "cert_chain": identity.chain,
            "private_key": identity.key,
            "override_hostname": name,
        }
    return options
