"""Where commands print."""

from __future__ import annotations

from rich.console import Console


def plain_console(*, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """Return a console that shows text as it is.

    Names, paths, expressions and messages hold brackets, which rich would take for markup: `m[key]` would be shown as
    `m`, and `[/tmp]` would be an error.

    Args:
        stderr: Whether it prints to standard error.
        soft_wrap: Whether lines that are too long are left to the terminal.
    """
    return Console(stderr=stderr, soft_wrap=soft_wrap, highlight=False, markup=False, emoji=False)
