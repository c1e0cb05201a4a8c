"""The first thing that the command `transom` runs: from here on Ctrl-C is quiet, also while Python imports the rest."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the command line; the entry point of the package."""
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))  # there is nothing to clean up yet
    from transom.cli import main

    main()


if __name__ == "__main__":  # spark-submit runs files
    main()
