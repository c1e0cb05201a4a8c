import random
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from benchmarks import gate, harness, klink_figures, klink_sim, plots, scheduling, scheduling_figures
from benchmarks.plots import Figure, Form, Panel, Series

pytestmark = pytest.mark.skipif(not plots.available(), reason="matplotlib is not installed")

SVG = "{http://www.w3.org/2000/svg}"


def texts(path: Path) -> set[str]:
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{SVG}svg"
    return {(each.text or "").strip() for each in root.iter(f"{SVG}text")}


def one_of_each() -> Figure:
    names = ("klink", "fcfs", "something else")
    lines = tuple(
        Series(name, (1, 10, 80), (0.1, 0.5, 7.0 + place), (0.0, 0.1, 1.0)) for place, name in enumerate(names)
    )
    values = tuple(Series(name, (), [0.1, 0.2, 5.0 + place]) for place, name in enumerate(names))
    bars = tuple(Series(name, (), (1.0, 2.0), (0.1, 0.2)) for name in names)
    times = tuple(Series(name, range(50), range(50)) for name in names)
    panels = (
        Panel(Form.LINES, "a", "queries", "latency (s)", lines),
        Panel(Form.CDF, "b", "latency (s)", "results (%)", values, x_log=True),
        Panel(Form.BARS, "c", "load", "latency (s)", bars, ("load70", "load90")),
        Panel(Form.TIMES, "d", "time (s)", "memory (GB)", times, levels={"limit <1>": 20.0}),
    )
    return Figure("every_form", "Every form & more", "What it shows: <everything>.", panels)


def test_a_figure_names_every_series_axis_and_level(tmp_path: Path) -> None:
    path = plots.draw(one_of_each(), tmp_path / "new")
    assert path == tmp_path / "new" / "every_form.svg"
    found = texts(path)
    assert {"klink", "fcfs", "something else", "latency (s)", "memory (GB)", "load90", "limit <1>"} <= found
    root = ElementTree.parse(path).getroot()
    assert [each.tag for each in root[:2]] == [f"{SVG}title", f"{SVG}desc"]
    assert (root[0].text, root[1].text) == ("Every form & more", "What it shows: <everything>.")


def test_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = (plots.draw(one_of_each(), tmp_path / name).read_bytes() for name in "ab")
    assert one == other


def test_a_name_has_one_look_in_all_figures_and_the_policies_differ() -> None:
    few, many = plots._looks(["klink"]), plots._looks(["x", "fair", "klink"])
    assert few["klink"] == many["klink"] != many["x"]
    ours = plots._looks(["static", "elastic", "range"])
    assert ours["elastic"] == ours["klink"]
    assert len({ours[name].colour for name in ("static", "elastic", "range")}) == 3
    known = [few[policy] for policy in scheduling.POLICIES]
    assert len({look.colour for look in known}) == len({look.marker for look in known}) == len(known)
    assert [look.strong for look in known] == [policy == "klink" for policy in scheduling.POLICIES]


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="klink: 2 x, 1 y"):
        Series("klink", (1, 2), (1,))
    with pytest.raises(ValueError, match="no series"):
        Panel(Form.LINES, "a", "x", "y", ())
    with pytest.raises(ValueError, match="each of 2 groups"):
        Panel(Form.BARS, "a", "x", "y", (Series("klink", (), (1,)),), ("g", "h"))


def measured(policy: int, load: float, repeat: int) -> scheduling.Measured:
    draw = random.Random(100 * policy + repeat)
    found = scheduling.Measured(throughput=50_000, cores=1.5, overhead=0.002)
    for query in ("q00", "q01"):
        found.latencies[query] = [draw.expovariate(2 / (load + policy)) for _ in range(50)]
        found.limits[query] = 1.5
    return found


def test_the_figures_of_the_policies_on_spark(tmp_path: Path) -> None:
    found = {
        load: {
            policy: [measured(place, share, repeat) for repeat in range(3)]
            for place, policy in enumerate(scheduling.POLICIES)
        }
        for load, (share, _) in scheduling.LOADS.items()
    }
    paths = [plots.draw(figure, tmp_path) for figure in scheduling_figures.figures(found)]
    assert [path.name for path in paths] == ["scheduling.svg", "scheduling_cdf.svg"]
    for path in paths:
        assert set(scheduling.POLICIES) | set(scheduling.LOADS) <= texts(path)


def test_the_figure_of_the_gate(tmp_path: Path) -> None:
    found = {name: [measured(place, 0.7, repeat) for repeat in range(2)] for place, name in enumerate(gate.ENGINES)}
    found["gated"][1].latencies["q00"] = []
    assert set(gate.ENGINES) <= texts(plots.draw(scheduling_figures.gate_figure(found), tmp_path))


def test_plot_is_an_option_of_every_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with harness.benchmark("some", "", ["--plot", str(tmp_path)], figures=True) as run:
        run.draw(one_of_each())
    assert (tmp_path / "every_form.svg").exists()
    with harness.benchmark("some", "", [], figures=True) as run:
        run.draw(Figure("none", "", "", one_of_each().panels))
    assert not (tmp_path / "none.svg").exists()
    with pytest.raises(SystemExit), harness.benchmark("other", "", ["--plot", str(tmp_path)]):
        pass
    assert "other has no figures" in capsys.readouterr().err


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "available", lambda: False)
    with pytest.raises(SystemExit), harness.benchmark("some", "", ["--plot", str(tmp_path)], figures=True):
        pass
    assert 'pip install -e ".[bench]"' in capsys.readouterr().err


def test_the_figures_of_the_policies_in_simulation(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)

    def sampled(queries: int, place: int) -> klink_figures.Sampled:
        mean = 0.1 + 0.002 * queries * (1 + place) + draw.uniform(0, 0.02, 3)
        return klink_figures.Sampled(
            latencies=draw.exponential(mean.mean(), 500),
            mean=mean,
            throughput=np.full(3, 10_000.0 * queries),
            memory=1e9 * np.abs(draw.normal(0.05 * queries, 0.3, (3, 200))),
            cores=np.clip(draw.normal(queries / 80, 0.05, (3, 200)), 0, 1),
        )

    sweep = {
        queries: {policy: sampled(queries, place) for place, policy in enumerate(klink_sim.POLICIES)}
        for queries in (1, 20, 60)
    }
    found = klink_figures.figures(dict.fromkeys(("ysb", "lrb", "nyt"), sweep), 100, 17.5e9)
    paths = [plots.draw(figure, tmp_path) for figure in found]
    assert [path.stem for path in paths] == ["klink_ysb", "klink_lrb_nyt", "klink_over_time", "klink_by_throughput"]
    for path in paths[:2]:
        assert set(klink_sim.POLICIES) <= texts(path)
    for path in paths[2:]:
        assert set(klink_figures.TWO) <= texts(path)
    slow = {one.name: one.y for one in found[0].panels[2].series}
    assert min(values[0] for values in slow.values()) == pytest.approx(1)  # the fastest query alone is the ideal
