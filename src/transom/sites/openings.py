"""The first words of a connection between two sites, and the last ones where it is refused."""

from __future__ import annotations

import json

from transom.errors import SiteError
from transom.widearea.hellos import Hello
from transom.widearea.messages import MOST_MESSAGE, Opening, from_bytes, to_bytes

REFUSED = b"!"
"""Begins the last message, with what is wrong."""


def opening_bytes(hello: Hello, opening: Opening) -> bytes:
    """Return the first message of a connection."""
    return json.dumps([hello.to_json(), to_bytes(opening).decode("latin-1")]).encode()


def opening_of(command: bytes) -> tuple[Hello, Opening]:
    """Return what the first message of a connection says.

    Raises:
        SiteError: It is something else, or too large.
    """
    remedy = "Both sites need the same version of the protocol."
    if len(command) > MOST_MESSAGE:
        raise SiteError(f"The opening of a connection has {len(command)} bytes.", remedy)
    try:
        hello, text = json.loads(command)
        opening = from_bytes(text.encode("latin-1"))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SiteError(f"This is no opening of a connection: {error}.", remedy) from error
    if not isinstance(opening, Opening):
        raise SiteError("This is no opening of a connection.", remedy)
    return Hello.from_json(hello), opening


def refusal_bytes(error: SiteError) -> bytes:
    """Return the message that tells the other end why it is refused."""
    return REFUSED + json.dumps([error.message, error.remedy]).encode()


def refused(data: bytes) -> SiteError:
    """Return what `refusal_bytes` told."""
    try:
        message, remedy = json.loads(data[1:])
    except (ValueError, TypeError, RecursionError):
        return SiteError("The other site refuses the connection.")
    return SiteError(str(message)[:2000], str(remedy)[:2000])
