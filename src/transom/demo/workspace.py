"""The demo's directory: started clean, and never somebody else's."""

from __future__ import annotations

import shutil
from pathlib import Path

from transom.errors import DefinitionError

MARKER = ".transom-demo"
"""A file that says that the demo made the directory."""
OWN = ("input", "results", "checkpoint")
"""The directories that the demo writes, and all that it ever deletes."""


def prepare(out: Path) -> None:
    """Make the directory, or empty it when an earlier demo made it.

    Raises:
        DefinitionError: It holds something that no demo wrote, or cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not (out / MARKER).is_file():
            raise DefinitionError(
                f"The directory {out} is not empty, and the demo did not make it.",
                "Nothing was changed. Choose another one with --out DIR.",
            )
        (out / MARKER).write_text("Made by `transom demo`, which deletes and writes: " + ", ".join(OWN) + "\n")
        for name in OWN:
            if (out / name).exists():
                shutil.rmtree(out / name)
    except OSError as error:
        raise DefinitionError(
            f"The directory {out} cannot be used: {error}.", "Choose another one with --out DIR."
        ) from error
