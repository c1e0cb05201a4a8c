"""Settings of an application: one frozen object, read once; unknown names are errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from transom.errors import DefinitionError, did_you_mean, short
from transom.model.signatures import check_fields
from transom.model.time import MAX_TIME, Duration, Micros, format_duration, parse_duration
from transom.model.tuning import MOST_EXECUTORS
from transom.scheduling.policies import LONGEST_WAIT, policy_named

OFF, AUTO = "off", "auto"
"""The setting `plan` of an application that does not plan, and of one that begins without a profile."""
MOST_KEY_GROUPS = 1 << 16
TIERS = ("auto", "driver", "cluster")
LANES = ("auto", "spark")
_DURATIONS = ("trigger", "poll", "cycle", "longest_wait", "recovery_bound", "stop_timeout")
_NAMES = {"policy": "klink", "tier": "auto", "lane": "auto", "plan": "auto"}
"""Settings that are a name, with an example."""


class SettingValues(TypedDict, total=False):
    """The settings as users write them, each with what it is by default; `Settings` says more of each."""

    trigger: Duration
    """Least time between two micro-batches of a stream: "200 ms"."""
    poll: Duration
    """Time between two looks at the sources: "50 ms"."""
    max_rows_per_cut: int
    """Largest micro-batch in rows: 750,000."""
    slots: int
    """Spark jobs that run at once: 2."""
    policy: str
    """The order in which streams run: "klink", "fcfs", "round_robin", "highest_rate", "streambox" or "fair"."""
    cycle: Duration
    """About how long a micro-batch may take where there are several streams: ten times the cost of a job."""
    longest_wait: Duration
    """A stream that has waited longer goes first: "30 seconds"."""
    memory_bound: float
    """Share of memory from which on the streams go first that free most of it: 0.8."""
    memory_limit: int
    """Bytes that the driver's process may use: half of the machine's."""
    sink_workers: int
    """Sinks that write at once: 4."""
    max_waiting_bytes: int
    """Bytes of results that may wait for one sink: 256 MiB."""
    snapshot_bytes: int
    """Size from which on log and partials are replaced by a snapshot: 32 MiB."""
    tier: str
    """Where partials are: "auto", "driver" or "cluster"."""
    lane: str
    """How partials are made of rows: by Spark SQL always ("spark"), or without it where that gives the same: "auto"."""
    driver_bytes: int
    """Bytes of partials that the driver holds with tier "auto": 1 GiB."""
    key_groups: int
    """Parts of the keys of partials on the executors: two for each core."""
    worker_bytes: int
    """Bytes of merged partials that each Python worker of the executors keeps: 256 MiB."""
    recovery_bound: Duration
    """Longest delay of windows because an executor was lost: "10 seconds"."""
    stop_timeout: Duration
    """Longest wait for micro-batches and sinks of an application that was told to stop: "60 seconds"."""
    share: bool
    """Whether queries share partials: True."""
    plan: str
    """"auto" to keep trigger, slots and tasks right while it runs, or a profile to begin with: "off"."""
    max_executors: int
    """With `plan`, the most executors that are asked for; by default as many stay as there are."""


@dataclass(frozen=True)
class Settings:
    """The settings of an application; durations in microseconds."""

    trigger: Micros = 200_000
    """Least time between the starts of two micro-batches of a stream, unless its backlog fills a whole cut."""
    poll: Micros = 50_000
    """Time between two looks at the sources."""
    max_rows_per_cut: int = 750_000
    """Largest micro-batch in rows, as far as the source can tell."""
    slots: int = 2
    """Spark jobs that run at once, over all streams."""
    policy: str = "klink"
    """The order in which streams run: klink, fcfs, round_robin, highest_rate, streambox, or fair for all at once."""
    cycle: Micros | None = None
    """A micro-batch takes no more rows than can be processed in about this time, so that no stream waits long for
    another one. Default: ten times what a job costs without rows, as measured; no bound where there is one stream."""
    longest_wait: Micros = LONGEST_WAIT
    """A stream that has waited longer goes before all others, whatever the policy."""
    memory_bound: float = 0.8
    """Share of memory, of the driver, of Spark's cache or of the JVM's heap, from which on the streams go first that
    free most of it, and those that only add to it wait while others free some; 1 for never."""
    memory_limit: int | None = None
    """Bytes that the driver's process may use; half of the machine's or container's memory if not given."""
    sink_workers: int = 4
    """Sinks that write at once."""
    max_waiting_bytes: int = 256 << 20
    """Bound on the results that wait for one sink. Beyond it a failing sink's query is taken out; for one that is only
    slow, the stream of the query is not read until it has caught up."""
    snapshot_bytes: int = 32 << 20
    """The checkpoint's log and partials are replaced by a snapshot when they exceed this and the last snapshot."""
    tier: str = "auto"
    """Where the partials of windows are: driver, cluster (files in the checkpoint, merged on the executors), or auto:
    on the driver as long as it has room for them. Except with driver, the checkpoint must be in a directory that all
    executors see."""
    lane: str = "auto"
    """How the jobs of micro-batches make partials: auto, in Python workers without Spark SQL where all of a stream is
    known to be the same there; or spark, by Spark SQL always. Results do not depend on it."""
    driver_bytes: int = 1 << 30
    """With tier auto: bytes of partials that the driver holds, over all streams; more are kept by the executors. With
    any tier: so many bytes in files the driver merges at most when the executors cannot. Where several sites run a job:
    a destination that has more of open windows takes only what the next ones wait for."""
    key_groups: int | None = None
    """Into so many parts the keys of partials on the executors are divided. Default: two for each core."""
    worker_bytes: int = 256 << 20
    """Bytes of merged partials that each Python worker of the executors keeps; what it has no room for is read from
    files again for each window."""
    recovery_bound: Micros = 10_000_000
    """Longest delay of windows because an executor was lost: until another one has read again what its memory
    held. Measured and reported; the application says so when a loss would take longer."""
    stop_timeout: Micros = 60_000_000
    """Longest wait for micro-batches and sinks of an application that was told to stop. What is not done then is left:
    it is in the checkpoint, and done by the next run."""
    share: bool = True
    """Whether queries share partials. Without, each is computed by itself: for comparison and for finding faults; the
    results are the same. Must stay what it is while a checkpoint is used."""
    plan: str = OFF
    """With "auto" an application plans while it runs, by what it learns of its costs: trigger, slots, rows of a task
    and tasks after an exchange, as far as they are not given here. The path of a profile is one to begin with."""
    max_executors: int | None = None
    """An application that plans asks the cluster manager for up to so many executors, when its limits need them, and
    gives back what it does not need, down to as many as there were at its start. Default: their number stays."""

    def __post_init__(self) -> None:
        check_fields(self, "settings")
        for name in (
            "max_rows_per_cut",
            "slots",
            "sink_workers",
            "poll",
            "max_waiting_bytes",
            "snapshot_bytes",
            "driver_bytes",
            "worker_bytes",
            "recovery_bound",
            "stop_timeout",
        ):
            if getattr(self, name) <= 0:
                raise DefinitionError(f"settings: {name} is {getattr(self, name)}.", "Give more than 0.")
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int) and abs(value) > MAX_TIME:
                raise DefinitionError(f"settings: {each.name} is {short(value)}.", "Give less.")
        if not 0 < self.memory_bound <= 1:
            raise DefinitionError(f"settings: memory_bound is {self.memory_bound}.", "Give a share above 0, up to 1.")
        if self.memory_limit is not None and self.memory_limit <= 0:
            raise DefinitionError(f"settings: memory_limit is {self.memory_limit}.", "Give bytes, more than 0.")
        for name in ("cycle", "longest_wait"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise DefinitionError(f"settings: {name} is {format_duration(value)}.", "Give more than 0.")
        most = self.max_executors
        if most is not None and not 0 < most <= MOST_EXECUTORS:
            raise DefinitionError(
                f"settings: max_executors is {most}.", f"Give a whole number from 1 to {MOST_EXECUTORS:,}."
            )
        if most is not None and self.plan == OFF:
            raise DefinitionError(
                "settings: max_executors is given, and only plans ask for executors.", 'Give plan="auto", too.'
            )
        if self.key_groups is not None and not 0 < self.key_groups <= MOST_KEY_GROUPS:
            raise DefinitionError(
                f"settings: key_groups is {self.key_groups}.", f"Give a number above 0, up to {MOST_KEY_GROUPS:,}."
            )
        if self.tier not in TIERS:
            raise DefinitionError(f"settings: tier is {self.tier!r}.", f"Give one of {', '.join(TIERS)}.")
        if self.lane not in LANES:
            raise DefinitionError(f"settings: lane is {self.lane!r}.", f"Give one of {', '.join(LANES)}.")
        policy_named(self.policy)
        if self.trigger < 0:
            raise DefinitionError(f"settings: trigger is {format_duration(self.trigger)}.", "Give 0 or more.")

    @classmethod
    def of(cls, values: Mapping[str, Duration | float]) -> Settings:
        """Return settings from what users wrote.

        Raises:
            DefinitionError: An unknown name, or a value of the wrong kind.
        """
        known = [field.name for field in fields(cls)]
        parsed: dict[str, Any] = {}
        for name, value in values.items():
            if name not in known:
                remedy = did_you_mean(name, known, f"Settings are {', '.join(known)}.")
                raise DefinitionError(f"settings: there is no {name!r}.", remedy)
            parsed[name] = _read(name, value)
        return cls(**parsed)


def _read(name: str, value: Any) -> Any:
    """Return a value as the setting has it."""
    if name in _DURATIONS and not isinstance(value, float):
        return parse_duration(value, f"settings: {name}")
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if name in _DURATIONS:
        fits, remedy = False, 'Write for example "30 seconds".'
    elif name in _NAMES:
        fits, remedy = isinstance(value, str), f'Give a name, for example "{_NAMES[name]}".'
    elif name == "share":
        fits, remedy = isinstance(value, bool), "Give True or False."
    elif name == "memory_bound":
        fits, remedy = number, "Give a share such as 0.8."
    else:
        fits, remedy = number and isinstance(value, int), "Give a whole number."
    if not fits:
        raise DefinitionError(f"settings: {name} is {value!r}.", remedy)
    return value
