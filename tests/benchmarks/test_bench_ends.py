"""Benchmarks of plans and overload come to their ends whatever their runs bring: bars, tables, the last line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks import burst, harness, latency_model, plan, replan, shed
from benchmarks.model_jobs import JOBS
from benchmarks.shed import LIMIT, Able, Measured
from tests.planning.profiles import profile, stream

Ends = Callable[..., dict[str, Any]]
"""Runs a benchmark with some of it replaced, and returns the figures of its last line."""
LATENCIES = [LIMIT - 1.0, LIMIT + 1.0, math.inf]
"""Of results that are in time, too late, and missing."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ends:
    def run(module: ModuleType, options: list[str], **instead: Any) -> dict[str, Any]:
        for name, value in instead.items():
            monkeypatch.setattr(module, name, value)
        out = tmp_path / "out.json"
        monkeypatch.setattr("sys.argv", ["benchmark", "--data", str(tmp_path), "--out", str(out), *options])
        module.main()
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert last.items() <= json.loads(out.read_text()).items()
        assert last["equal"]
        figures: dict[str, Any] = last["figures"]
        return figures

    return run


def worker(engine: str, work: Path, cores: int = 2) -> Any:
    return nullcontext(SimpleNamespace(call=lambda operation, **how: 0))


def profiled(run: Any, worker: Any, job: str, seconds: float) -> Any:
    streams = JOBS[job].streams
    return profile(**{name: stream() for name in streams}), dict.fromkeys(streams, (0.1, 1e-6))


def seen(run: Any, worker: Any, job: Any, rate: float, tuning: Any, seconds: float) -> Any:
    run.check([])
    phases = {"turn": 0.1, "map": 0.2, "deliver": 0.001}
    many = [0.5] * (20 if job.name == "windowed" else 400)
    return SimpleNamespace(mean=0.5, quantile=0.9, latencies=many, phases=phases, backlog_seconds=0.1, missing=0)


def overloaded(latency: float) -> Callable[..., Measured]:
    """Return what runs under overload instead of the real thing."""

    def measure(run: Any, worker: Any, label: str, policy: str, rates: Any, first: int, last: int, **how: Any) -> Any:
        run.check([])
        ends = range(first, last)
        rows = dict.fromkeys(ends, 80) if latency < math.inf else {}
        return Measured(dict.fromkeys(ends, latency), rows, dict.fromkeys(ends, 100), ["something is said"])

    return measure


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("options", [["--quick"], []])
def test_shed(ends: Ends, options: list[str], latency: float) -> None:
    able = Able(10_000.0, 1e-4, 0.1)
    found = ends(shed, options, Worker=worker, ability=lambda *how: able, measure=overloaded(latency))
    assert found["load150.even.results"] == (latency <= LIMIT)
    assert found["costly.rows_ratio"] == found["costly.beside_ratio"] == (1.0 if latency <= LIMIT else None)
    assert ("load110.even.rows" in found) is (not options)


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("options", [["--quick"], []])
def test_burst(ends: Ends, tmp_path: Path, options: list[str], latency: float) -> None:
    found = ends(burst, options, **bursts(tmp_path), measure=overloaded(latency))
    assert {found[f"twitter.{engine}"] for engine in burst.ENGINES} == {float(latency <= LIMIT)}
    assert ("nasa.shed" in found) is (not options)


def test_bursts_for_which_there_is_no_time_are_said_to_be(
    ends: Ends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "QUICK_SECONDS", 20)
    with pytest.raises(RuntimeError, match="no time for a run"):
        ends(burst, ["--quick"], **bursts(tmp_path), measure=overloaded(1.0))


def bursts(data: Path) -> dict[str, Any]:
    """Return what there is instead of engines and traces."""
    for trace in burst.TRACES.values():
        (data / trace.file).touch()
    return {
        "Worker": worker,
        "TRACES": {
            name: SimpleNamespace(file=trace.file, per_point=1, read=lambda data: None)
            for name, trace in burst.TRACES.items()
        },
        "stretch": lambda values, per_point, points: np.ones(points),
        "ability": lambda *how: Able(10_000.0, 1e-4, 0.1),
        "stock_ability": lambda *how: 5_000.0,
        "profile": lambda *how: data / "profile.json",
    }


@pytest.mark.parametrize("options", [["--quick"], pytest.param([], marks=pytest.mark.slow)])
def test_latency_model(ends: Ends, options: list[str]) -> None:
    found = ends(latency_model, options, Worker=worker, profiled=profiled, measure=seen)
    assert found["mean.settings"] == (3 if options else 36)
    assert found["p99.settings"] == (3 if options else 30)  # of the others there are too few results
    assert found["phase.within10"] is not None


@pytest.mark.parametrize("options", [["--quick"], pytest.param([], marks=pytest.mark.slow)])
def test_plan(ends: Ends, options: list[str]) -> None:
    instead = {
        "virtual_session": lambda: None,
        "numbers": lambda run, session, truth, cores: plan.Numbers(3, None if cores == 1 else 4),
        "solve": lambda *how: None,
        "compiled_once": nullcontext,
    }
    found = ends(plan, options, Worker=worker, profiled=profiled, measure=seen, **instead)
    assert found["sim.jobs"] == (plan.FEW_JOBS if options else plan.JOBS_IN_VIRTUAL_TIME)
    assert 0 < found["sim.right"] < found["sim.jobs"]
    assert found["runs"] == found["runs_met"] == (2 if options else 18)
    assert found["stock.mean_s"] == 0.5
    assert ("gain_median" in found) is (not options)


@pytest.mark.parametrize("late", [[], [130.0], [299.0]])
def test_replan(ends: Ends, late: list[float]) -> None:
    def run_one(run: Any, session: Any, seconds: float, **changing: Any) -> Any:
        results = {replan.STREAM: [(moment, 1.0 + replan.LIMIT * (moment in late)) for moment in (*late, 299.5)]}
        played = SimpleNamespace(sink=SimpleNamespace(seen=results))
        watch: Any = SimpleNamespace(changes=[10.0, 130.0], spent=0.5)
        return replan.Seen(played, watch)  # type: ignore[arg-type]

    found = ends(replan, ["--quick"], run_one=run_one, virtual_session=lambda: None, compiled_once=nullcontext)
    assert found["cost.recover_s"] == (None if late == [299.0] else late[0] - replan.CHANGE if late else 0.0)
    assert found["changes"] == found["idle_changes"] == 1
