"""The errors behind an error: of Python, of Java as far as it is still there to tell, and of Python's workers."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import transom.errors
from transom.errors import TransomError


@dataclass(frozen=True)
class Link:
    """One error of those behind another."""

    names: tuple[str, ...]
    """Its class and those that it derives from, with modules or packages."""
    text: str
    condition: str | None = None
    """Spark's name of the error condition."""
    code: int | None = None
    """`errno`."""
    error: TransomError | None = None
    at_worker: bool = False


def python_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what Python names as its causes, each once."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__


def links_of(error: BaseException) -> Iterator[Link]:
    """Yield an error and all that is known behind it, the outermost first."""
    for each in python_causes(error):
        names = _names(type(each))
        condition = None
        with suppress(Exception):  # Java is gone, or it is no error of Spark
            condition = each.getCondition()  # type: ignore[attr-defined]
        java = list(_java_links(each))
        own = each if isinstance(each, TransomError) else None
        code = each.errno if isinstance(each, OSError) else None
        yield Link(names, "" if java else str(each), condition, code, own)
        yield from java
        if not java and any(name.endswith(".PythonException") for name in names):
            yield from worker_errors(str(each))
        with suppress(Exception):  # Spark Connect: the causes are in the server's stack trace
            yield from _told(str(each.getStackTrace()))  # type: ignore[attr-defined]


def _java_links(error: BaseException) -> Iterator[Link]:
    """Yield the Java errors behind an error of a classic session, as far as Java is still there to tell."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with suppress(Exception):
        for _ in range(32):
            if cause is None:
                return
            names, kind, condition = [], cause.getClass(), None
            while kind is not None:
                names.append(kind.getName())
                kind = kind.getSuperclass()
            text = cause.getMessage() or ""
            with suppress(Exception):  # it has none
                condition = cause.getCondition()
            yield Link(tuple(names), text, condition)
            if "org.apache.spark.api.python.PythonException" in names:
                yield from worker_errors(text)
            cause = cause.getCause()


_CAUSED = re.compile(r"^Caused by: ([\w.$]+)(?:: (.*))?$", re.MULTILINE)


def _told(trace: str) -> Iterator[Link]:
    for found in _CAUSED.finditer(trace):
        yield Link((found[1],), found[2] or "")


_TRACEBACK = "Traceback (most recent call last):"


_ANOTHER = re.compile(
    r"\n\n(?:During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:)\n\n"
)


_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: ?(.*))?$", re.DOTALL)


def worker_errors(text: str) -> Iterator[Link]:
    """Yield what a Python worker raised, given the text of its traceback; the outermost first.

    The line that names an error is the first that is not indented; what its own message says stays a message.
    """
    begin = text.find(_TRACEBACK)
    if begin < 0:
        return
    traces = [trace for trace in _ANOTHER.split(text[begin:]) if trace.startswith(_TRACEBACK)]
    for trace in reversed(traces):
        lines = trace.splitlines()[1:]
        first = next((number for number, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
        raised = _RAISED.match("\n".join(lines[first:]))
        if raised is not None:
            yield _raised(raised[1], re.sub(r"\n? SQLSTATE: \w+\s*$", "", raised[2] or "").strip())


def worker_traceback(error: BaseException) -> str | None:
    """Return the traceback of the Python worker behind an error, without what Java says; None if there is none."""
    texts = [link.text for link in links_of(error)] + [str(each) for each in python_causes(error)]
    text = next((text for text in texts if _TRACEBACK in text), None)
    if text is None:
        return None
    lines = text[text.index(_TRACEBACK) :].split("\nJVM stacktrace:")[0].splitlines()
    return "\n".join(line for line in lines if not line.startswith("\tat ")).strip()


def _raised(name: str, text: str) -> Link:
    """Return the error of a class that a traceback names, if it is Python's or ours."""
    module, _, last = name.rpartition(".")
    home: Any = {"": builtins, transom.errors.__name__: transom.errors}.get(module)
    kind = getattr(home, last, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        return Link((name,), text, at_worker=True)
    number = re.match(r"\[Errno (\d+)\]", text) if issubclass(kind, OSError) else None
    return Link(
        _names(kind),
        text,
        code=int(number[1]) if number else None,
        error=kind(text) if issubclass(kind, TransomError) else None,
        at_worker=True,
    )


def _names(kind: type[BaseException]) -> tuple[str, ...]:
    return tuple(f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__)
