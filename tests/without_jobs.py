"""Applications without Spark jobs: what Spark made of queries is remembered, and Arrow makes the partials of cuts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from transom.engine.execution import runners
from transom.engine.execution.onspark import SparkJob
from transom.engine.spark import deadletters
from transom.engine.spark.compile import Compiled, compile_queries
from transom.engine.streams import compiling
from transom.simulation.inmemory import run_in_memory
from transom.storage.durable import make_directory, names_in, remove_tree, replacing
from transom.storage.places import Place

MOST = 60
"""What is remembered: more than any test compiles."""
_compiled: dict[Any, tuple[Compiled, Any]] = {}
"""What was compiled, and what was noted of the checkpoint's queries by the way."""


def compiled_once(session, schema, rows, queries, share=True, arrangement=None, carried=None) -> Compiled:
    """Compile queries, or remember what equal ones of an equal stream are; their transformations are the same objects.

    Not for tests that change settings of the session.
    """
    noted = tuple(vars(carried).items()) if carried is not None else ()
    key = (schema.json(), rows, tuple(queries), share, arrangement, repr(noted))
    if key not in _compiled:
        options = {} if arrangement is None else {"arrangement": arrangement}
        made = compile_queries(session, schema, rows, queries, share, **options, carried=carried)
        after = {} if carried is None else {name: type(value)(value) for name, value in vars(carried).items()}
        _compiled[key] = made, after
        if len(_compiled) > MOST:
            del _compiled[next(iter(_compiled))]
    made, after = _compiled[key]
    if carried is not None:
        vars(carried).update({name: type(value)(value) for name, value in after.items()})
    return replace(made, queries=dict(made.queries), definitions=dict(made.definitions))


def compile_once(patch: pytest.MonkeyPatch) -> None:
    """Let streams that run remember what Spark made of their queries."""
    patch.setattr(compiling, "compile_queries", compiled_once)


def ask_once(patch: pytest.MonkeyPatch) -> None:
    """Let Spark compile queries, give the partials of a cut and write its dead letters once; tries get the same.

    For tests that run applications with equal cuts again and again.
    """
    given: dict[tuple[str, ...], Any] = {}
    written: dict[str, tuple[Any, dict[str, bytes]]] = {}
    partials, write = SparkJob.partials, deadletters.write_dead_letters

    def given_once(job: Any, plan: Any) -> Any:
        key = str(job.cut), *plan.queries
        if key not in given:
            given[key] = partials(job, plan)
        return given[key]

    def written_once(*args: Any, directory: Place, **options: Any) -> Any:
        if directory.name not in written:
            found = write(*args, directory=directory, **options)
            written[directory.name] = found, {name: (directory / name).read_bytes() for name in names_in(directory)}
        remove_tree(directory)  # they replace those of an earlier try, also of one that was killed with its process
        make_directory(directory)
        found, contents = written[directory.name]
        for name, content in contents.items():
            with replacing(directory / name) as file:
                file.write(content)
        return found

    compile_once(patch)
    patch.setattr(SparkJob, "partials", given_once)
    patch.setattr(deadletters, "write_dead_letters", written_once)


def run_without_jobs(patch: pytest.MonkeyPatch) -> None:
    """Let the jobs of cuts be those of `run_in_memory`, which refuses what it does not know."""
    compile_once(patch)
    patch.setattr(runners, "run_on_spark", lambda stream, job, *_: run_in_memory(stream, job))
