"""Every error that Transom raises on purpose; one root, each with what happened and what to do."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable


class TransomError(Exception):
    """Root of Transom's errors.

    Args:
        message: What happened, naming the field or file.
        remedy: What the reader can do about it; one sentence.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class DefinitionError(TransomError):
    """A query, window, aggregate, watermark or setting that cannot work; raised when it is defined."""


class JobFileError(DefinitionError):
    """A job file (Python or TOML) that cannot be loaded."""


class SessionError(TransomError):
    """A Spark session, Java or Python that Transom cannot work with."""


class SourceError(TransomError):
    """A source that cannot be read."""


class SourceAwayError(SourceError):
    """A source that cannot be reached now, and that is waited for."""


class SourceLostError(SourceError):
    """Rows that a stream has not read are gone; it halts, and others go on."""


class SinkError(TransomError):
    """A sink that refused results after all retries."""


class CheckpointError(TransomError):
    """A checkpoint that cannot be used."""


class CheckpointInUseError(CheckpointError):
    """Another running application holds the checkpoint."""


class CheckpointFencedError(CheckpointError):
    """A newer application took over the checkpoint; this one may not commit any more."""


class CheckpointCorruptError(CheckpointError):
    """A record or file of the checkpoint that was damaged after it was written."""


class CheckpointFullError(CheckpointError):
    """The disk of the checkpoint is full; what was committed before is safe."""


class JobChangedError(CheckpointError):
    """A query of the checkpoint has another definition in the job."""


class QueryFailedError(TransomError):
    """A query that failed and was taken out of the running application."""


class StoppedError(TransomError):
    """A run that was stopped at once, or a change asked of an application that ended before it could be made."""


class ControlError(TransomError):
    """A running application that cannot be reached, or that does not answer."""


class SiteError(TransomError):
    """Another site that cannot be talked to, or sent what cannot be taken."""


def short(value: object) -> str:
    """Return a value as a program has it, in one line and not too long, for a message.

    >>> short("1 MB")
    "'1 MB'"
    """
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # whatever it does with its own; of whole numbers with too many digits, Python
        text = f"a value that cannot be shown ({type(error).__name__})"
    return text if len(text) <= 60 else text[:57] + "..."


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """Return the remedy for a name that is not known: one that is like it, or another sentence.

    >>> did_you_mean("grop_by", ["group_by", "where"], "Known are group_by and where.")
    "Did you mean 'group_by'?"
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else otherwise


def require_extra(extra: str, libraries: Iterable[str], what: str) -> None:
    """Refuse a part of Transom whose libraries are not installed with the rest.

    Args:
        extra: Its name in `pip install "transom[...]"`.
        libraries: The modules that it imports.
        what: The part, for people.

    Raises:
        DefinitionError: One of them is not installed.
    """
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    if missing:
        raise DefinitionError(
            f"{what} needs {' and '.join(missing)}, not installed here.", f'Run: pip install "transom[{extra}]".'
        )
