"""The command `transom`."""

from __future__ import annotations

from transom.cli.main import cli, main

__all__ = ["cli", "main"]
