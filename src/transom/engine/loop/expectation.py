"""The plan of a running application: its settings, what they lead to by the model, what is measured, past changes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transom.engine.control.digests import Digests
from transom.engine.control.phases import PhaseRecorder
from transom.engine.control.scheduler import Scheduler
from transom.engine.loop.metrics import Metrics
from transom.engine.loop.tuning import Tuner
from transom.engine.streams.stream import RunningStream
from transom.model.phases import Phase
from transom.model.time import MICROS_PER_SECOND, Clock
from transom.planning.model import Machine, Model, StreamLatency
from transom.planning.profile import StreamProfile

SHARE = 0.99
"""The quantile that is told of latencies."""


@dataclass(frozen=True)
class Expectation:
    """Compares what the model says of an application, as it is set and with the rows that come, with what is seen."""

    streams: Mapping[str, RunningStream]
    digests: Digests
    scheduler: Scheduler
    phases: PhaseRecorder
    metrics: Metrics
    tuner: Tuner
    clock: Clock

    def report(self) -> dict[str, Any]:
        """Return it as JSON; seconds, rows per second; null where something is not known."""
        known, tuning = self.digests.known(), self.tuner.tuning
        rates = {name: self._rate(stream) for name, stream in self.streams.items()}
        machine = Machine.measured(known.profile.equipment)
        planned = {name: rates[name] for name in known.profile.streams}
        expected = Model(known.profile, machine, tuning, planned).predict().streams if planned else {}
        return {
            "slots": tuning.slots,
            "cores": machine.cores,
            "executors": self._executors(),
            "streams": {
                name: {
                    "rate": rates[name],
                    "tuning": tuning.of(name).to_json(),
                    "unknown": known.unknown.get(name),
                    "measured": self._measured(stream),
                    "expected": _expected(expected[name], known.profile.streams[name]) if name in expected else None,
                }
                for name, stream in self.streams.items()
            },
            "changes": self._changes(),
            "profile": json.loads(known.profile.to_json()),
        }

    def _executors(self) -> dict[str, int | None] | None:
        """Return how many executors there are, and are to be; None where plans do not ask for any."""
        executors = self.tuner.executors
        if executors is None:
            return None
        return {"there": executors.count, "asked": executors.asked, "most": executors.most}

    def _rate(self, stream: RunningStream) -> float:
        """Return the rows that come in a second."""
        return self.scheduler.of(stream, self.clock.monotonic()).backlog.rate * MICROS_PER_SECOND

    def _measured(self, stream: RunningStream) -> dict[str, Any]:
        means = {name: micros / MICROS_PER_SECOND for name, micros in self.phases.means(stream.name).items()}
        latency = self.phases.latency(stream.name)
        seen = self.metrics.latencies(stream.state.queries)
        return {
            "phases": {str(phase): means.get(str(phase)) for phase in Phase},
            "mean": None if latency is None else latency / MICROS_PER_SECOND,
            "results": len(seen),
            "quantile": seen[math.ceil(SHARE * len(seen)) - 1] / MICROS_PER_SECOND if seen else None,
        }

    def _changes(self) -> list[dict[str, Any]]:
        """Return what was changed, the newest last."""
        found, before = [], None
        for change in self.tuner.changes:
            known = change.settings if before is None else before
            found.append({"at": change.at, "reason": change.reason, "changes": change.tuning.changes(known)})
            before = change.tuning
        return found


def _expected(latency: StreamLatency, profile: StreamProfile) -> dict[str, Any]:
    if not latency.result.finite:
        return {"keeps_up": False, "phases": {}, "mean": None, "quantile": None, "form": profile.residuals.form}
    phases = {str(phase): time.mean for phase, time in latency.phases.items()}
    return {
        "keeps_up": True,
        "phases": phases,
        "mean": sum(phases.values()),
        "quantile": profile.residuals.quantile(latency.result, SHARE),
        "form": profile.residuals.form,
    }
