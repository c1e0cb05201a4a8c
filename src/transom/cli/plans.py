"""`transom plan`: the smallest machine that keeps a limit at a rate, by a profile, or why there is none."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from transom.cli.consoles import plain_console
from transom.cli.expectations import asked, profile_of, show_application
from transom.cli.profiling import default_profile, here
from transom.errors import (
    CheckpointError,
    ControlError,
    DefinitionError,
    JobFileError,
    did_you_mean,
    require_extra,
)
from transom.jobs.digest import job_digest
from transom.model.phases import Phase
from transom.model.time import MICROS_PER_SECOND, format_duration, parse_duration
from transom.model.tuning import MOST_EXECUTORS
from transom.planning.goals import Goal
from transom.planning.model import Machine
from transom.planning.phases import WORDS
from transom.planning.profile import Profile
from transom.planning.solve import Plan, Size, solve
from transom.sinks.printing import plain_text

BUSY = 0.9
"""Share of the time from which on the cores are what binds. A stream that keeps up may be busy all the time."""
WORDS_OF_LOADS = {
    "cores": "the cores",
    "slots": "the slots for jobs",
    "stream": "the busiest stream's cuts, one at a time",
    "thread": "the loop's thread",
    "sinks": "the slowest sink",
}


def plan_job(
    job: Path,
    *,
    rates: Sequence[str],
    within: str | None,
    quantile: float,
    cores: int | None,
    executors: int | None,
    profile: Path | None,
    timeout: str,
    as_json: bool,
) -> None:
    """Print the smallest machine that keeps a limit, or why there is none; then the exit code is 1.

    Without a rate and all that a plan is made for, print the plan of the application that runs.

    Raises:
        DefinitionError: A number that makes no sense, or a profile that is damaged or of something else.
        ControlError: There is no profile, and no application runs that has one.
    """
    if not rates and (within, profile, cores, executors) == (None, None, None, None):
        try:
            show_application(job, timeout=timeout, as_json=as_json)
        except (ControlError, CheckpointError, JobFileError) as error:
            raise type(error)(error.message, f"{error.remedy} To plan for a rate, give it: --rate 50000.") from error
        return
    require_extra("planning", ("scipy",), "transom plan")
    known = known_of(job, profile, timeout)
    goal = Goal(rates_of(known, rates), limits_of(known, within), quantile)
    plan = solve(known, goal, *machines_of(known, cores, executors))
    unit = "core" if executors is None else "executor"
    if as_json:
        print(json.dumps(to_json(known, plan, unit), indent=2))
    else:
        plain_console(soft_wrap=True).print(shown_plan(known, plan, unit))
    if not plan.kept:
        raise typer.Exit(1)


def known_of(job: Path, profile: Path | None, timeout: str) -> Profile:
    """Return the profile of a job: in the file that is given, where `transom profile` puts it, or of what runs.

    Raises:
        DefinitionError: It is damaged, or of something else.
        ControlError: There is none.
    """
    where = profile or default_profile(job)
    if profile is not None or (job.is_file() and where.is_file()):
        return read_profile(where, job_digest(job))
    try:
        return profile_of(asked(job, timeout), job)
    except (ControlError, CheckpointError, JobFileError) as error:
        if job.suffix not in (".toml", ".py"):
            raise
        job_digest(job)  # says what is wrong with a job that cannot be read
        raise DefinitionError(
            f"plan: there is no profile {where}, and no application of this job that runs has one.",
            f"Make one: transom profile {job}.",
        ) from error


def read_profile(path: Path, digest: str) -> Profile:
    """Return the profile in a file, if it is of the job with this digest, made with what there is here.

    Raises:
        DefinitionError: It is not.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DefinitionError(
            f"plan: the profile {path} cannot be read: {error}.", "Make one: transom profile JOB --out FILE."
        ) from error
    found = Profile.from_json(text, str(path))
    found.require(digest, here(), str(path))
    return found


def rates_of(known: Profile, given: Sequence[str]) -> dict[str, float]:
    """Return the rows per second of each stream: N for all that read a source, STREAM=N for one.

    A stream of results gets what its profile says of them.

    Raises:
        DefinitionError: No number, no such stream, or a stream that is left out.
    """
    rates: dict[str, float] = {}
    for each in given:
        name, equals, number = each.rpartition("=")
        if equals and name not in known.streams:
            names = ", ".join(known.streams)
            raise DefinitionError(
                f"plan: there is no stream {name!r}.", did_you_mean(name, known.streams, f"Streams are {names}.")
            )
        try:
            rate = float(number.replace("_", "").replace(",", ""))
        except ValueError:
            raise DefinitionError(f"plan: the rate {each!r} is no number.", "Give rows per second: 50000.") from None
        sources = [stream for stream, value in known.streams.items() if value.after is None and stream not in rates]
        rates |= dict.fromkeys([name] if equals else sources, rate)
    missing = [name for name, value in known.streams.items() if value.after is None and name not in rates]
    if missing:
        raise DefinitionError(
            f"plan: no rate of {', '.join(missing)} is given.", f"Give rows per second: --rate {missing[0]}=50000."
        )
    for name in sorted(known.streams, key=lambda each: len(known.chain(each))):
        before = known.streams[name].after
        if before is not None and name not in rates:
            parent = known.streams[before].at(rates[before])
            rates[name] = max(parent.results, 1.0) / parent.closing
    return rates


def limits_of(known: Profile, within: str | None) -> dict[str, float]:
    """Return the limit of each stream in seconds: the one that is given, or that of the job's queries."""
    if within is not None:
        limit = parse_duration(within, "--within") / MICROS_PER_SECOND
        return dict.fromkeys(known.streams, limit)
    return {name: stream.limit for name, stream in known.streams.items() if stream.limit is not None}


def machines_of(known: Profile, cores: int | None, executors: int | None) -> tuple[Any, int]:
    """Return what makes a machine from a number of executors, and the most of them; in local mode, of cores.

    Raises:
        DefinitionError: A number of cores or executors that there cannot be.
    """
    for name, value in (("--cores", cores), ("--max-executors", executors)):
        if value is not None and not 0 < value <= MOST_EXECUTORS:
            raise DefinitionError(f"plan: {name} is {value}.", f"Give a whole number from 1 to {MOST_EXECUTORS:,}.")
    measured = known.equipment
    if executors is None:
        return lambda n: Machine(n, measured.shared, measured.driver), cores or measured.cores
    each = cores or measured.cores
    return lambda n: Machine(n * each, False, measured.driver), executors


def binding(plan: Plan) -> str:
    """Return what keeps the latency from being less, in words; of a limit that is not kept, with the margin."""
    expected, margin = (plan.choice.prediction, 0.0) if plan.kept else (plan.choice.careful, plan.goal.margin)
    if_dearer = f", if all costs {100 * margin:.0f} % more than was measured" if margin else ""
    if not expected.keeps_up or expected.loads["cores"] >= BUSY:
        loads = expected.loads
        name = "cores" if loads["cores"] >= BUSY else max(loads, key=lambda each: loads[each])
        return f"{WORDS_OF_LOADS[name]} would be busy {100 * loads[name]:.0f} % of the time{if_dearer}"
    worst = max(plan.goal.limits, key=lambda name: plan.choice.longest[name] / plan.goal.limits[name])
    phases = expected.streams[worst].phases
    phase = max(phases, key=lambda each: phases[each].mean)
    return f"the longest phase of {worst} is {phase} ({WORDS[phase]}), {_ms(phases[phase].mean)} on average{if_dearer}"


def nearest(plan: Plan) -> str:
    """Return what could be kept instead, in words."""
    ways = []
    if math.isfinite(plan.nearest):
        ways.append(f"{_seconds(plan.nearest * min(plan.goal.limits.values()))} at these rates")
    factor = max(size.factor for size in plan.sizes)
    if factor > 0:
        ways.append(f"{_rates({name: factor * rate for name, rate in plan.goal.rates.items()})} within this limit")
    return ", or ".join(ways) or "a larger machine, which is not known here: no rate is within the limit on this one"


def notes(known: Profile, plan: Plan) -> list[str]:
    """Return what a reader of a plan should know of it."""
    found = []
    for name, each in plan.choice.prediction.streams.items():
        stream = known.streams[name]
        for what, rows in (("", each.rows), ("the largest rate has ", _rows_at_most(plan, name))):
            if stream.most_rows and rows > 2 * stream.most_rows:
                found.append(
                    f"{name}: {what}cuts of {rows:,.0f} rows; the largest measured had {stream.most_rows:,.0f}, so "
                    "their costs are extrapolated."
                )
                break
        if plan.goal.share is not None and stream.residuals.form != "measured":
            found.append(f"{name}: quantiles by the bound of {stream.residuals.form}; few cuts were measured." if
                stream.residuals.form == "Cantelli" else f"{name}: quantiles as of a normal distribution.")  # fmt: skip
    return found


def _rows_at_most(plan: Plan, stream: str) -> float:
    """Return the rows of a cut of a stream at the largest rate within the limit."""
    return plan.sizes[-1].choice.prediction.streams[stream].rows if plan.sizes[-1].factor else 0.0


def to_json(known: Profile, plan: Plan, unit: str) -> dict[str, Any]:
    """Return a plan for programs; what is infinite is null."""
    size = plan.sizes[-1]
    return {
        "kept": plan.kept,
        "unit": unit,
        "number": size.executors,
        "cores": size.cores,
        "rates": dict(plan.goal.rates),
        "limits": dict(plan.goal.limits),
        "quantile": plan.goal.share,
        "margin": plan.goal.margin,
        "tuning": plan.choice.tuning.to_json(),
        "latencies": {name: _finite(value) for name, value in plan.choice.latencies.items()},
        "latencies_with_margin": {name: _finite(value) for name, value in plan.choice.longest.items()},
        "phases": {
            name: {str(phase): _finite(time.mean) for phase, time in stream.phases.items()}
            for name, stream in plan.choice.prediction.streams.items()
        },
        "loads": {name: _finite(load) for name, load in plan.choice.prediction.loads.items()},
        "binds": binding(plan),
        "largest_rates": [
            {"number": each.executors, "cores": each.cores, "factor": each.factor} for each in plan.sizes
        ],
        "nearest": None if plan.kept else nearest(plan),
        "notes": notes(known, plan),
    }


def shown_plan(known: Profile, plan: Plan, unit: str) -> RenderableType:
    """Return a plan as a person reads it."""
    size, goal = plan.sizes[-1], plan.goal
    number = _counted(size.executors, unit)
    limits = sorted(set(goal.limits.values()))
    asked = f"{_rates(goal.rates)}, {goal.share:.4g} of the results within {' and '.join(map(_seconds, limits))}"
    if not plan.kept:
        return Group(
            Text(f"{asked}: cannot be met with {number}, because {binding(plan)}; the nearest that can is "
                 f"{nearest(plan)}.", style="bold red"),
            *[Text(note, style="dim") for note in notes(known, plan)],
        )  # fmt: skip
    lines: list[RenderableType] = [
        Text(f"{asked}: {number} suffice{'s' if size.executors == 1 else ''}.", style="bold"),
        Text(f"Largest rate within the limit: {_largest(plan, size)}."),
        *([Text(f"With fewer: {_fewer(plan, unit)}.")] if len(plan.sizes) > 1 else []),
        Text(f"What binds: {binding(plan)}."),
        Text(f"Set: slots = {plan.choice.tuning.slots}; of each stream:"),
        _settings(plan),
        Text("Expected, on average, milliseconds:"),
        _phases(plan),
    ]
    for name, latency in plan.choice.latencies.items():
        longer = plan.choice.longest[name]
        lines.append(
            Text(
                f"{name}: {goal.share:.4g} within {_seconds(latency)}, and within {_seconds(longer)} if all costs "
                f"{100 * goal.margin:.0f} % more than was measured."
            )
        )
    return Group(*lines, *[Text(note, style="dim") for note in notes(known, plan)])


def _largest(plan: Plan, size: Size) -> str:
    """Return the largest rates within the limit on a machine."""
    return _rates({name: size.factor * rate for name, rate in plan.goal.rates.items()}) if size.factor else "no rate"


def _fewer(plan: Plan, unit: str) -> str:
    """Return what smaller machines can do."""
    return "; ".join(f"{_counted(size.executors, unit)} {_largest(plan, size)}" for size in plan.sizes[:-1])


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _settings(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for head in ("stream", "trigger", "rows per task", "partitions"):
        table.add_column(head, justify="left" if head == "stream" else "right")
    for name, each in plan.choice.tuning.streams.items():
        per_task = "unset" if each.rows_per_task is None else f"{each.rows_per_task:,}"
        table.add_row(plain_text(name), format_duration(each.trigger), per_task, str(each.partitions or "unset"))
    return table


def _phases(plan: Plan) -> Table:
    streams = plan.choice.prediction.streams
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("phase", style="cyan")
    for name in streams:
        table.add_column(plain_text(name), justify="right")
    table.add_column("")
    for phase in Phase:
        means = [f"{1e3 * stream.phases[phase].mean:,.0f}" for stream in streams.values()]
        table.add_row(str(phase), *means, WORDS[phase])
    table.add_row("result", *[f"{1e3 * stream.result.mean:,.0f}" for stream in streams.values()], "all of them")
    return table


def _rates(rates: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {rate:,.0f} rows/s" for name, rate in rates.items())


def _seconds(value: float) -> str:
    return f"{value:.3g} s"


def _ms(value: float) -> str:
    return f"{1e3 * value:,.0f} ms"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
