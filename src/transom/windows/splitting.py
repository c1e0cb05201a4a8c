"""Split or direct: share panes between overlapping windows, or compute each window from the rows.

Enorm, section 5.1, whose combined form is called direct here. Split, each row is aggregated once, into its pane, and
windows are made of panes. Direct, each row is aggregated into every window that holds it. Split wins when windows
overlap much and each key has many rows; direct wins when nearly every row has a key of its own, so that a pane is no
smaller than its rows and merging panes costs more than aggregating again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum

import numpy as np

from transom.errors import DefinitionError
from transom.model.time import Micros
from transom.model.window import WindowSpec

SECOND = 1_000_000
GAIN = 0.2
"""Share of the cost that a change must save: changing costs a new plan, and measured costs waver."""


class Form(Enum):
    """The way in which a component makes windows."""

    SPLIT = "split"
    """Partials per pane, consolidated into windows."""
    DIRECT = "direct"
    """Partials per window."""


def _check(value: object) -> None:
    for one in fields(value):  # type: ignore[arg-type]
        number = getattr(value, one.name)
        if not 0 <= number < math.inf:
            raise DefinitionError(f"{type(value).__name__}: {one.name} is {number}.", "Give 0 or more.")


@dataclass(frozen=True)
class UnitCosts:
    """Costs as measured, or set, in seconds of CPU.

    Raises:
        DefinitionError: A cost is negative or not finite.
    """

    row: float
    """E: the job, per row and window (or pane) that it is aggregated into."""
    merge: float
    """K_1: the driver, per row of a partial that it merges."""
    moved: float = 0.0
    """L: waiting for the state of one key group to move, seconds."""

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class Load:
    """The load of a component within a period p, the length of its longest window.

    Raises:
        DefinitionError: A number is negative or not finite.
    """

    period: Micros
    """p."""
    rows: float
    """T_p: rows within p."""
    cut_rows: float
    """Rows of one cut."""
    overlap: float
    """W: windows that hold a row, over all window specifications."""
    panes: float
    """PW_p: panes within p."""
    windows: float
    """Windows that end within p."""
    keys: float
    """Keys in a pane."""
    window_keys: float
    """Keys in a window; at least those of a pane, at most those times its panes."""
    inputs: float
    """Panes, spans and smaller windows that consolidation reads within p."""
    moves: float = 0.0
    """MK_p: key groups that change place within p; 0 where one process merges all."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def inputs_per_close(self) -> float:
        """The number of parts that one window is made of on average."""
        return self.inputs / self.windows if self.windows else 0.0


def load_of(
    specs: Sequence[WindowSpec],
    rows_per_second: float,
    cut_rows: float,
    keys: float,
    window_keys: float,
    inputs: float | None = None,
) -> Load:
    """Return the load of windows of fixed length.

    Args:
        specs: The windows of the component's queries, without repetitions.
        rows_per_second: Rate by event time.
        cut_rows: Rows of one cut.
        keys: Keys in a pane, measured.
        window_keys: Keys in a window, measured.
        inputs: Inputs of consolidation within the longest window, if measured. Else an estimate: a window of n
            panes reads all, or twice log2 n spans, whichever is less.

    Raises:
        DefinitionError: There is no window, or a number is negative.
    """
    if not specs:
        raise DefinitionError("split or direct: there is no window.", "Give at least one.")
    period = max(spec.length for spec in specs)
    edges = [np.arange(e % s.slide, period, s.slide) for s in specs for e in (s.offset, s.offset + s.length)]
    panes = len(np.unique(np.concatenate(edges)))
    ending = [period / spec.slide for spec in specs]
    made_of = [panes * spec.length / period for spec in specs]
    estimate = sum(
        count * min(n, 2 * math.ceil(math.log2(max(n, 2)))) for count, n in zip(ending, made_of, strict=True)
    )
    return Load(
        period,
        rows_per_second * period / SECOND,
        cut_rows,
        sum(spec.length / spec.slide for spec in specs),
        panes,
        sum(ending),
        keys,
        window_keys,
        estimate if inputs is None else inputs,
    )


def cpu(form: Form, load: Load, costs: UnitCosts) -> float:
    """Return the seconds of CPU within a period.

    Split: T_p E + PW_p K_1 keys + MK_p K_1. Direct: T_p W E + MK_p K_1 PW_p. Two terms that the paper leaves out,
    because there both forms run the same consolidation where the rows are: split merges the inputs of
    consolidation, `inputs` K_1 keys, and direct brings each window to the driver, `windows` K_1 keys.
    """
    if form is Form.SPLIT:
        merged = (load.panes + load.inputs) * load.keys + load.moves
        return load.rows * costs.row + merged * costs.merge
    merged = load.windows * load.window_keys + load.moves * load.panes
    return load.rows * load.overlap * costs.row + merged * costs.merge


def latency(form: Form, load: Load, costs: UnitCosts) -> float:
    """Return the seconds from the cut that closes a window to its result.

    Both: the job of the cut, which is longer when each row goes into several windows. Split: consolidation at the
    close. Direct: the moves of state, MK_p L, as in the paper; a split component moves without waiting.
    """
    if form is Form.SPLIT:
        return load.cut_rows * costs.row + load.inputs_per_close * load.keys * costs.merge
    return load.cut_rows * load.overlap * costs.row + load.moves * costs.moved


@dataclass(frozen=True)
class Decision:
    """The form in force, and when it was last looked at."""

    form: Form = Form.SPLIT
    reviewed: Micros | None = None
    """None: never."""

    def review(
        self, now: Micros, load: Load, costs: UnitCosts, bound: float | None = None, gain: float = GAIN
    ) -> Decision:
        """Return the decision from now on; at most one review per period, as costs change slowly (section 5.1.2).

        Least CPU among the forms whose latency is within the bound; if neither's is, least latency. A
        form that keeps the bound stays unless the other saves the share `gain`, so that noise does not make it flap.

        Args:
            now: Microseconds.
            load: The work since the last review.
            costs: Measured over the same time.
            bound: The longest latency in seconds; None for any.
            gain: Share of the CPU that a change must save.
        """
        if self.reviewed is not None and now - self.reviewed < load.period:
            return self
        return Decision(choose(load, costs, bound, self.form, gain), now)


def choose(load: Load, costs: UnitCosts, bound: float | None, current: Form, gain: float = GAIN) -> Form:
    """Return the better form; see `Decision.review`."""
    other = Form.DIRECT if current is Form.SPLIT else Form.SPLIT
    limit = math.inf if bound is None else bound
    keeps, would = (latency(form, load, costs) <= limit for form in (current, other))
    if keeps != would:
        return current if keeps else other
    if not keeps:
        return min((current, other), key=lambda form: latency(form, load, costs))
    return other if cpu(other, load, costs) < (1 - gain) * cpu(current, load, costs) else current
