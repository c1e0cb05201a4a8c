"""When to compute key sets in another way: which are derived from finer ones, and which window by window.

The measured form of Enorm's decisions for this engine: Migrate (section 4.5) moves a key set between the aggregations
of the job, split and combine (section 5.1) chooses panes or windows. All costs are seconds, from the running job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from transom.model.time import MICROS_PER_SECOND, Micros
from transom.model.window import WindowSpec
from transom.windows.components import Arrangement, Component, KeySet, derivable
from transom.windows.splitting import GAIN, Decision, Form, Load, UnitCosts, load_of

PERSIST = 1.0
"""Cost of a second aggregation in a job besides itself, in aggregations: the rows are kept for it. Measured: the CPU
of a job with two aggregations is 2.5 to 3.4 times that with one."""


@dataclass(frozen=True)
class Flow:
    """The measurements of one key set over some cuts."""

    rows: int = 0
    """Rows of the cuts."""
    cuts: int = 0
    fed: int = 0
    """Partials that its store was given."""
    kept: int = 0
    """Partials after those of one pane (or window) and key were merged."""
    spans: int = 0
    """Panes (or windows) that they were in."""
    windows: int = 0
    """Windows that were made."""
    window_rows: int = 0
    """Keys in them, in total."""
    inputs: int = 0
    """Partials of panes, spans and windows that they were made of."""

    def __add__(self, other: Flow) -> Flow:
        return Flow(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(Flow)))

    @property
    def keys(self) -> float:
        """Keys in a pane (or window) of a cut."""
        return self.kept / self.spans if self.spans else 0.0


@dataclass(frozen=True)
class Review:
    """The memory of a review for the next one."""

    arrangement: Arrangement
    decisions: Mapping[str, Decision]
    """By name of the key set."""
    pane_keys: Mapping[str, float]
    """Keys in a pane, as last seen while a key set had panes."""

    @classmethod
    def start(cls, arrangement: Arrangement) -> Review:
        """Return what is known before anything was measured."""
        return cls(arrangement, {name: Decision(Form.DIRECT) for name in arrangement.direct}, {})

    def again(
        self,
        components: Sequence[Component],
        flows: Mapping[str, Flow],
        span: Micros,
        now: Micros,
        costs: UnitCosts,
        gain: float = GAIN,
    ) -> Review:
        """Return the arrangement from now on.

        Args:
            components: What the job computes now.
            flows: What was measured since the last review, by name of the key set.
            span: Event time that went by since then.
            now: Event time.
            costs: Measured over the same time, or set.
            gain: Share of the cost that a change must save: it costs a new plan, and measured costs waver.
        """
        decisions, keys = dict(self.decisions), dict(self.pane_keys)
        hosts = dict(self.arrangement.hosts)
        direct = set(self.arrangement.direct)
        for component in components:
            for key_set in component.key_sets:
                flow = flows.get(key_set.name)
                if flow is None or not flow.spans:
                    continue
                if not component.direct:
                    keys[key_set.name] = flow.keys
                if key_set.can_be_direct and key_set is component.finest and _overlaps(key_set):
                    load = _load(key_set, flow, span, keys.get(key_set.name, flow.keys))
                    known = decisions.get(key_set.name, Decision())
                    decisions[key_set.name] = known.review(now, load, costs, _bound(key_set), gain)
                    direct.discard(key_set.name)
                    if decisions[key_set.name].form is Form.DIRECT:
                        direct.add(key_set.name)
                if not component.direct:
                    hosts.update(_move(key_set, component, components, flows, costs, gain))
        arrangement = Arrangement(frozenset(hosts.items()), frozenset(direct))
        return replace(self, arrangement=arrangement, decisions=decisions, pane_keys=keys)


def _move(
    key_set: KeySet,
    component: Component,
    components: Sequence[Component],
    flows: Mapping[str, Flow],
    costs: UnitCosts,
    gain: float,
) -> dict[str, str]:
    """Return where to compute a key set from now on, if it is not where it is: Migrate(O, C_j, C_k), section 4.5.

    It goes where least has to be done for it: to an aggregation of its own over the rows, or to the component whose
    finest key set hands over fewest partials (Algorithm 1 with the score COMM fuses along the edge with the highest
    rate, which leaves the lowest to cross; here what crosses can be computed again instead, at a known cost).
    """
    flow, here = flows[key_set.name], component.finest.name
    others = len(components) - (1 if key_set is component.finest else 0)
    options = {key_set.name: _alone(flow, others, costs)}
    if all(primitive.small for primitive in key_set.primitives):
        serving = [c.finest.name for c in components if _serves(c, key_set) and c.finest.name in flows]
        options.update({name: _derived(flows[name].kept, costs) for name in serving})
    if key_set is not component.finest:
        options[here] = _derived(flow.fed, costs)
    best = min(options, key=lambda name: options[name])
    return {key_set.name: best} if options[best] < (1 - gain) * options[here] else {}


def _load(key_set: KeySet, flow: Flow, span: Micros, keys: float) -> Load:
    specs = [window for window in key_set.windows if isinstance(window, WindowSpec)]
    period = max(spec.length for spec in specs)
    seconds = max(span, 1) / MICROS_PER_SECOND
    window_keys = flow.window_rows / flow.windows if flow.windows else flow.keys
    inputs = flow.inputs * period / max(span, 1) if flow.windows else None
    return load_of(specs, flow.rows / seconds, flow.rows / max(flow.cuts, 1), keys, max(keys, window_keys), inputs)


def _overlaps(key_set: KeySet) -> bool:
    """Tell whether rows are in several windows; else a window is little more than a pane, and panes can be shared."""
    return any(isinstance(window, WindowSpec) and not window.tumbling for window in key_set.windows)


def _bound(key_set: KeySet) -> float | None:
    """Return the shortest latency target of the key set's queries in seconds."""
    limits = [query.target.limit / MICROS_PER_SECOND for query in key_set.queries if query.target is not None]
    return min(limits, default=None)


def _serves(component: Component, key_set: KeySet) -> bool:
    return component.finest is not key_set and not component.direct and derivable(key_set, component.finest)


def _alone(flow: Flow, others: int, costs: UnitCosts) -> float:
    """Return what it costs to compute a key set from the rows: the job aggregates them once more."""
    return flow.rows * costs.row * (1 + PERSIST if others == 1 else 1) + flow.kept * costs.merge


def _derived(partials: int, costs: UnitCosts) -> float:
    """Return what it costs to derive a key set: the driver merges the finer partials."""
    return partials * costs.merge
