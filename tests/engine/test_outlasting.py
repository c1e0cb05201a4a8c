"""What is tried again while executors are lost, and for how long; without Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException

from transom.engine.placed.mapped import PartitionGoneError
from transom.engine.placed.outlasting import outlasting, passes
from transom.engine.placed.placed import NoExecutorError
from transom.errors import DefinitionError, SessionError
from transom.model.time import ManualClock

MINUTE = 60_000_000


class Failing:
    """An action that fails with these errors, then gives its number of tries."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.tries = 0

    def __call__(self) -> int:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.tries


def none() -> Exception:
    return NoExecutorError("Spark has no executor.")


def worker(last: str) -> Exception:
    return PythonException(f'Traceback (most recent call last):\n  File "x.py", line 1, in f\n{last}')


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (none(), True),
        (PartitionGoneError("/tmp/x.arrow"), True),
        (worker("transom.engine.placed.mapped.PartitionGoneError: /tmp/x.arrow"), True),
        (worker("FileNotFoundError: [Errno 2] what a user's function reads"), False),
        (SessionError("The Spark session was stopped."), False),
        (DefinitionError("A label like FetchFailed."), False),
        (ValueError("anything"), False),
    ],
)
def test_only_what_passes_with_time_is_tried_again(error: Exception, expected: bool) -> None:
    assert passes(error) == expected


def test_it_is_tried_until_it_succeeds_and_what_comes_before_may_fail_alike() -> None:
    clock, before = ManualClock(), Failing(none())
    action = Failing(none(), none(), none())
    assert outlasting(action, MINUTE, clock, lambda tries: before() and None) == 4
    assert before.tries == 4
    assert 0 < clock.now() < MINUTE


def test_after_the_bound_an_error_says_what_was_missing() -> None:
    clock, action = ManualClock(), Failing(*[none() for _ in range(1_000)])
    with pytest.raises(SessionError, match=r"For 1 minute executors were missing or lost: Spark has no executor"):
        outlasting(action, MINUTE, clock)
    assert clock.now() == MINUTE
    assert action.tries < 40
    with pytest.raises(SessionError, match="missing or lost"):
        outlasting(Failing(none()), 0, clock)


def test_other_errors_come_at_once() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="mine"):
        outlasting(Failing(none(), ValueError("mine")), MINUTE, clock)
    assert clock.now() < MINUTE
