"""Share of sweeping watermarks that arrive inside the interval that was foretold for them, and how wide that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Run, benchmark
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.workloads.base import DELAYS
from transom.demo.flights import load_flights
from transom.scheduling.arrivals import EPOCHS, DelayMoments, LagHistory

Floats = npt.NDArray[np.float64]

PERIOD = 1_000_000
"""Microseconds of event time between two sweeping watermarks, and the largest delay."""
RATE = 10_000
"""Events per second."""
CONFIDENCES = (0.95, 0.9)
HOUR = 3_600
REDUCED = "2,000 watermarks of each kind and law instead of 20,000"


@dataclass(frozen=True)
class Watermarks:
    """Sweeping watermarks in order."""

    lags: Floats
    """Arrival minus the end of the window, microseconds."""
    delays: list[DelayMoments]
    """Of the records of each epoch."""
    injected: bool


def injected(law: Callable[[np.random.Generator, int], Floats], count: int) -> Watermarks:
    """Return watermarks that the source injects and the network delays as it delays records."""
    random = np.random.default_rng(1)
    return Watermarks(law(random, count), [moments(law(random, RATE)) for _ in range(count)], True)


def derived(law: Callable[[np.random.Generator, int], Floats], count: int) -> Watermarks:
    """Return watermarks that follow from the largest event time read: an event at or behind the end arrives.

    Events come evenly in event time; those of the next two periods can be the first to arrive.
    """
    random = np.random.default_rng(2)
    after_end = np.arange(2 * RATE) * (PERIOD / RATE)
    lags, delays = [], []
    for _ in range(count):
        delay = law(random, 2 * RATE)
        lags.append((after_end + delay).min())
        delays.append(moments(delay[:RATE]))
    return Watermarks(np.array(lags), delays, False)


def moments(delays: Floats) -> DelayMoments:
    """Return the sums over some records."""
    return DelayMoments.of(delays)


def flights() -> Watermarks:
    """Return the watermarks of the flights of 2013: hours of scheduled departures, half an hour of delay allowed."""
    table = load_flights()
    table = table[table["dep_delay"].notna()]
    hours = np.array(table["time_hour"].str.rstrip("Z").to_list(), dtype="datetime64[s]").astype(np.int64)
    scheduled = hours + 60 * table["minute"].to_numpy(np.int64)
    delay = 60.0 * table["dep_delay"].to_numpy(np.float64)
    order = np.argsort(scheduled + delay, kind="stable")
    scheduled, arrived = scheduled[order], (scheduled + delay)[order]
    watermark = np.maximum.accumulate(scheduled) - HOUR // 2
    ends = np.unique(scheduled // HOUR * HOUR + HOUR)
    position = np.searchsorted(watermark, ends)
    closed = position < len(arrived)
    lags = 1e6 * (arrived[position[closed]] - ends[closed])
    return Watermarks(lags, [DelayMoments()] * len(lags), False)


@dataclass
class Hits:
    """Intervals of one kind and what fell into them."""

    inside: list[bool]
    widths: list[float]

    @property
    def share(self) -> float:
        """Share of the watermarks that fell inside, percent."""
        return 100 * float(np.mean(self.inside))

    @property
    def half(self) -> float:
        """Half width of the 95 % interval of the share, percent."""
        share = float(np.mean(self.inside))
        return 196 * float(np.sqrt(share * (1 - share) / len(self.inside)))

    def width_over_shortest(self, lags: Floats) -> float:
        """Return the mean width over the shortest fixed interval that holds as many of the same watermarks."""
        ordered, held = np.sort(lags), max(2, sum(self.inside))
        shortest = (ordered[held - 1 :] - ordered[: len(ordered) - held + 1]).min()
        return float(np.mean(self.widths)) / float(shortest)


def regression(past: Floats, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval around a line through the last lags; the baseline.

    The paper does not say which interval its linear regression has; here it is z standard deviations of the residuals.
    """
    x = np.arange(len(past), dtype=np.float64)
    slope, intercept = np.polyfit(x, past, 1)
    sigma = float((past - slope * x - intercept).std(ddof=2))
    middle = float(slope * len(past) + intercept)
    return middle - z * sigma, middle + z * sigma


def measure(watermarks: Watermarks) -> tuple[dict[float, Hits], Hits]:
    """Foretell each watermark from the ones before; the first `EPOCHS` are only learned from."""
    history = LagHistory(injected=watermarks.injected)
    hits = {confidence: Hits([], []) for confidence in CONFIDENCES}
    line = Hits([], [])
    for number, lag in enumerate(watermarks.lags):
        for confidence, found in hits.items():
            span = history.interval(0, confidence)
            if span is not None and number >= EPOCHS:
                found.inside.append(bool(span[0] <= round(lag) <= span[1]))
                found.widths.append(span[1] - span[0])
        if number >= EPOCHS:
            low, high = regression(watermarks.lags[number - EPOCHS : number])
            line.inside.append(bool(low <= lag <= high))
            line.widths.append(high - low)
        history.seen(round(lag), watermarks.delays[number])
    return hits, line


def draw(run: Run, found: dict[str, tuple[dict[float, Hits], Hits, Floats]]) -> None:
    """Write the Klink paper's figure 9c: accuracy by law of delay and confidence, and how wide the intervals are."""
    names = [f"Klink, f = {100 * confidence:.0f} %" for confidence in CONFIDENCES] + ["linear regression"]
    all_hits = [[*hits.values(), line] for hits, line, _ in found.values()]
    columns = list(zip(names, zip(*all_hits, strict=True), strict=True))
    shares = tuple(Series(name, (), [one.share for one in case], [one.half for one in case]) for name, case in columns)
    lags = [known for *_, known in found.values()]
    widths = tuple(
        Series(name, (), [one.width_over_shortest(known) for one, known in zip(case, lags, strict=True)])
        for name, case in columns
    )
    groups = tuple(name.replace(".", "\n") for name in found)
    promised = {f"f = {100 * confidence:.0f}": 100 * confidence for confidence in CONFIDENCES}
    inside = Panel(Form.BARS, "Accuracy", "", "watermarks in the interval (%)", shares, groups, promised, y_top=105)
    wide = Panel(Form.BARS, "Width", "", "width over the shortest (ratio)", widths, groups, {"shortest": 1.0})
    text = (
        "Share of sweeping watermarks that arrived inside the interval foretold for them, and the mean width of the "
        "interval over that of the shortest fixed one that holds as many, for injected and derived watermarks, uniform "
        "and Zipf(0.99) delays, and the delays of flights."
    )
    run.draw(Figure("watermark_accuracy", "Foretelling the next sweeping watermark", text, (inside, wide)))


def main() -> None:
    """Run the benchmark."""
    with benchmark("watermark_estimate", REDUCED, figures=True) as run:
        count = EPOCHS + (2_000 if run.quick else 20_000)
        kinds = {"injected": injected, "derived": derived}
        cases = {f"{kind}.{law}": make(DELAYS[law], count) for kind, make in kinds.items() for law in DELAYS}
        cases["flights"] = flights()
        rows: list[list[object]] = []
        found: dict[str, tuple[dict[float, Hits], Hits, Floats]] = {}
        for name, watermarks in cases.items():
            hits, line = measure(watermarks)
            known = watermarks.lags[EPOCHS:]
            found[name] = hits, line, known
            width = hits[0.95].width_over_shortest(known)
            run.figure(f"{name}.f95", hits[0.95].share)
            if name != "flights":
                run.figure(f"{name}.f90", hits[0.9].share)
                run.figure(f"{name}.regression", line.share)
            run.figure(f"{name}.width95", width)
            narrow = hits[0.9].width_over_shortest(known)
            rows.append([name, len(known), hits[0.95].share, width, hits[0.9].share, narrow, line.share])
            off = [
                f"{name}: {f:.0%} was promised, {h.share:.1f} % held" for f, h in hits.items() if h.share < 100 * f - 2
            ]
            run.check(off)
        columns = ["watermarks", "number", "f95 %", "width95", "f90 %", "width90", "regression %"]
        run.table("Sweeping watermarks inside their interval (widths relative to the shortest)", columns, rows)
        draw(run, found)


if __name__ == "__main__":
    main()
