"""From the path of a job to an `App`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.checkpoint.files import checkpoint_at
from transom.errors import JobFileError, TransomError
from transom.jobs.building import build_job, check_job
from transom.jobs.jobfile import load_job
from transom.storage.places import ObjectPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from transom.api.app import App
    from transom.sites.here import LocalSite

_SHAPE = "A job in Python defines build(spark) -> App, or build(spark, checkpoint) -> App."


def load(
    path: Path, checkpoint: Path | None = None, *, aside: bool = False, site: LocalSite | None = None
) -> Callable[[SparkSession], App]:
    """Return a function that builds the application; everything that needs no Spark is checked before.

    Args:
        path: A `.toml` or `.py` file.
        checkpoint: Directory to use instead of the job's.
        aside: Whether the caller sees to it that a checkpoint that the job chooses itself is not used.
        site: The site that this one is, if several run the job.

    Raises:
        DefinitionError: The job cannot be loaded, or something in it cannot work.
    """
    if not path.is_file():
        raise JobFileError(f"There is no job file {path}.", "Give the path of a TOML or Python file.")
    directory = None if checkpoint is None else str(checkpoint)
    if checkpoint is not None and isinstance(where := checkpoint_at(checkpoint), ObjectPath):
        directory = str(where)
    if path.suffix == ".toml":
        spec = load_job(path)
        check_job(spec, directory, site)
        return lambda spark: build_job(spec, spark, directory, site)
    if path.suffix == ".py":
        build = _python_build(path)
        arguments = _at_site(path, build, directory, site) if site else _arguments(path, build, directory, aside)
        return lambda spark: _checked(path, build(spark, *arguments))
    raise JobFileError(f"{path} is neither a .toml nor a .py file.", _SHAPE)


def reads_kafka(path: Path) -> bool:
    """Tell whether a job in TOML reads topics of Kafka, for which Spark needs a module; a job in Python cannot tell."""
    return path.suffix == ".toml" and any(source.kind == "kafka" for source in load_job(path).sources)


def _python_build(path: Path) -> Callable[..., Any]:
    """Import the file as the module `transom_job`, with its directory importable as for `python file.py`.

    Executors cannot import it, so its functions are sent to them whole.
    """
    from pyspark import cloudpickle

    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location("transom_job", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        spec.loader.exec_module(module)
    except TransomError:
        raise
    except Exception as error:
        line = _line_in(path, error)
        raise JobFileError(
            f"{path}{line} fails: {type(error).__name__}: {error}.", f"Run python {path} to see more."
        ) from error
    build = getattr(module, "build", None)
    if not callable(build):
        raise JobFileError(f"{path} has no function build.", _SHAPE)
    return build  # type: ignore[no-any-return]


def _line_in(path: Path, error: BaseException) -> str:
    lines, trace = [], error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.lineno is not None:
        lines.append(error.lineno)
    return f", line {lines[-1]}," if lines else ""


def _arguments(path: Path, build: Callable[..., Any], checkpoint: str | None, aside: bool) -> list[str | None]:
    """Return what `build` gets after the session."""
    parameters = inspect.signature(build).parameters
    if len(parameters) == 2:
        # Without --checkpoint a default of the job's own stays in force.
        keeps = checkpoint is None and list(parameters.values())[1].default is not inspect.Parameter.empty
        if not keeps and checkpoint is None:
            raise JobFileError(f"build in {path} asks for a checkpoint.", "Give --checkpoint DIR.")
        return [] if keeps else [checkpoint]
    if len(parameters) != 1:
        raise JobFileError(f"build in {path} takes {len(parameters)} arguments.", _SHAPE)
    if checkpoint is not None and not aside:
        raise JobFileError(
            f"build in {path} chooses its own checkpoint, so --checkpoint cannot be given.",
            "Define build(spark, checkpoint) instead.",
        )
    return []


def _at_site(path: Path, build: Callable[..., Any], checkpoint: str | None, site: LocalSite) -> list[Any]:
    """Return what `build` gets after the session at a site."""
    if len(inspect.signature(build).parameters) != 3:
        raise JobFileError(
            f"build in {path} does not take a site.", "Define build(spark, checkpoint, site), and give App the site."
        )
    return [checkpoint, site]


def _checked(path: Path, app: Any) -> App:
    from transom.api.app import App

    if not isinstance(app, App):
        raise JobFileError(f"build in {path} returned {type(app).__name__}, not an App.", "Return the App.")
    return app
