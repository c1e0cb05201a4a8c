"""Every error that Transom raises on purpose; one root, each with what happened and what to do."""

from __future__ import annotations


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
    """A change that was asked of an application which ended before it could be made."""


class ControlError(TransomError):
    """A running application that cannot be reached, or that does not answer."""
