"""`transom plan APP`: what a running application is set to, what that leads to, and what is measured beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from transom.checkpoint.control import ask
from transom.cli.consoles import plain_console
from transom.cli.queries import checkpoint_of
from transom.errors import ControlError, DefinitionError
from transom.model.phases import Phase
from transom.model.time import SystemClock, format_duration, format_time, parse_duration
from transom.model.tuning import StreamTuning
from transom.planning.phases import WORDS
from transom.planning.profile import Profile
from transom.sinks.printing import plain_text


def asked(app: Path, timeout: str) -> dict[str, Any]:
    """Return what a running application says of its plan.

    Args:
        app: Its checkpoint, or the TOML job that it was started from.
        timeout: How long to wait for it.

    Raises:
        ControlError: No application runs, or it does not answer.
    """
    request = {"operation": "plan", "names": []}
    answer = ask(checkpoint_of(app), request, SystemClock(), parse_duration(timeout, "--timeout"))
    if "error" in answer:
        raise ControlError(answer["error"]["message"], answer["error"]["remedy"])
    return answer


def profile_of(answer: Mapping[str, Any], app: Path) -> Profile:
    """Return the profile that a running application has made of itself.

    Raises:
        DefinitionError: It does not know enough yet.
    """
    unknown = {name: each["unknown"] for name, each in answer["streams"].items() if each["unknown"]}
    if unknown:
        raise DefinitionError(
            f"plan: the application on {app} does not know yet what it costs: {' '.join(unknown.values())}",
            "Ask again later, or make a profile: transom profile JOB.",
        )
    return Profile.from_json(json.dumps(answer["profile"]), f"the profile of {app}")


def show_application(app: Path, *, timeout: str, as_json: bool) -> None:
    """Print settings, predicted and measured latency, and past changes of a running application.

    Raises:
        ControlError: No application runs, or it does not answer.
    """
    answer = asked(app, timeout)
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        plain_console(soft_wrap=True).print(_shown(answer))


def _shown(answer: Mapping[str, Any]) -> RenderableType:
    streams = answer["streams"]
    set_ = f"Set: slots = {answer['slots']}{_executors(answer)}; of each stream:"
    lines: list[RenderableType] = [Text(set_), _settings(streams)]
    lines += [Text("Expected with these and with the rows that come, and measured, milliseconds:"), _phases(streams)]
    for name, each in streams.items():
        if each["unknown"]:
            lines.append(Text(f"{name}: nothing is expected yet. {each['unknown']}", style="dim"))
        elif not each["expected"]["keeps_up"]:
            lines.append(Text(f"{name}: it does not keep up, so that its backlog grows.", style="bold red"))
        if each["measured"]["results"]:
            quantile = f"0.99 of the last {each['measured']['results']:,} results within"
            lines.append(Text(f"{name}: {quantile} {_ms(each['measured']['quantile'])} ms{_expected_quantile(each)}."))
    return Group(*lines, *_changes(answer["changes"]))


def _executors(answer: Mapping[str, Any]) -> str:
    """Say how many executors there are, beside those that were asked for; nothing where plans do not ask for any."""
    executors = answer.get("executors")
    if executors is None or executors["asked"] is None:
        return ""
    there, asked = executors["there"], executors["asked"]
    return f", executors = {asked}" + (f" ({there} there)" if there != asked else "")


def _expected_quantile(each: Mapping[str, Any]) -> str:
    expected = each["expected"]
    if expected is None or expected["quantile"] is None:
        return ""
    return f"; expected were {_ms(expected['quantile'])} ms ({expected['form']})"


def _settings(streams: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for head in ("stream", "rows/s", "trigger", "rows per cut", "rows per task", "partitions"):
        table.add_column(head, justify="left" if head == "stream" else "right")
    for name, each in streams.items():
        tuning = StreamTuning.from_json(each["tuning"])
        whole = (tuning.rows_per_cut, tuning.rows_per_task, tuning.partitions)
        numbers = ["unset" if number is None else f"{number:,}" for number in whole]
        table.add_row(plain_text(name), f"{each['rate']:,.0f}", format_duration(tuning.trigger), *numbers)
    return table


def _phases(streams: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("phase", style="cyan")
    for name in streams:
        table.add_column(f"{plain_text(name)}: expected", justify="right")
        table.add_column("measured", justify="right")
    table.add_column("")
    for phase in Phase:
        row = []
        for each in streams.values():
            row += [_ms((each[side] or {}).get("phases", {}).get(str(phase))) for side in ("expected", "measured")]
        table.add_row(str(phase), *row, WORDS[phase])
    whole = [_ms((each[side] or {}).get("mean")) for each in streams.values() for side in ("expected", "measured")]
    table.add_row("result", *whole, "all of them")
    return table


def _changes(changes: list[Mapping[str, Any]]) -> list[RenderableType]:
    if not changes:
        return [Text("It is as the settings say; nothing was changed.")]
    lines: list[RenderableType] = [Text("Changes:")]
    for change in changes:
        when = format_time(change["at"]) if change["at"] else "earlier"
        lines.append(Text(f"  {when}  {'; '.join(change['changes']) or 'nothing'} ({change['reason']})"))
    return lines


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:,.0f}"
