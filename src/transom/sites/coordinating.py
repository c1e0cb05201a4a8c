"""The coordinator as a process: takes reports by Flight, keeps its plan in a file, and gives it to whoever asks.

A site asks every few seconds, and says with the question what it knows; so nothing has to be pushed, and whoever was
away hears of the newest plan when it is back.
"""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from transom.errors import DefinitionError, SiteError, TransomError
from transom.model.time import MICROS_PER_SECOND, Clock, Micros, format_duration
from transom.sites.notices import Notices
from transom.sites.secured import Identity, authority_options, check_address, client_options, plain
from transom.storage.durable import replacing
from transom.widearea.belief import APART
from transom.widearea.checked import WRONG
from transom.widearea.coordinator import Coordinator, Question, Report
from transom.widearea.messages import MOST_MESSAGE
from transom.widearea.planning import plan
from transom.widearea.plans import Plan
from transom.widearea.topology import Site, Topology

SECONDS = 3.0
"""That solvers may take for one plan."""
EVERY: Micros = 2 * MICROS_PER_SECOND
"""Between two reports of a site."""
_LOOK: Micros = MICROS_PER_SECOND // 4
MOST_REPORT = 16 * MOST_MESSAGE
"""Bytes of a report, and of what is answered."""
MOST_WAITING = 16
"""Reports of one site that wait while a plan is made; more are refused."""
KEPT = 4
"""Plans that wait for a site's loop, the newest ones."""
REPORT = "report"
PLANS = " plans"
"""What notices are about beside sites, which have no such names."""


def read_plan(path: Path) -> Plan | None:
    """Return the plan that a file holds; None if there is no file.

    Raises:
        DefinitionError: It holds something else, or cannot be read.
    """
    try:
        if not path.exists():
            return None
        return Plan.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise DefinitionError(
            f"The plan {path} cannot be read: {error.strerror}.", "Name the file that the last coordinator wrote."
        ) from error
    except (ValueError, RecursionError, DefinitionError) as error:
        raise DefinitionError(
            f"{path} holds no plan: {error}",
            "Restore it, or remove it once no site follows one of its plans: their versions must not fall.",
        ) from error


class _Server(fl.FlightServerBase):  # type: ignore[misc]
    def __init__(
        self,
        answer: Callable[[Site, bytes], bytes],
        refused: Callable[[Site, SiteError], None],
        location: str,
        **options: Any,
    ) -> None:
        self._answer, self._refused = answer, refused
        super().__init__(location, **options)

    def do_action(self, context: Any, action: Any) -> list[Any]:
        """Take a report and return the plan, if it is newer than the site's."""
        identity = context.peer_identity().decode("utf-8", "replace")
        try:
            if action.type != REPORT or action.body.size > MOST_REPORT:
                raise SiteError("This is no report.", "Run the same version of Transom at all sites.")
            return [fl.Result(pa.py_buffer(self._answer(identity, action.body.to_pybytes())))]
        except SiteError as error:
            self._refused(identity, error)
            return [fl.Result(pa.py_buffer(json.dumps({"refused": str(error)}).encode()))]


class Coordinating:
    """Runs a coordinator.

    Args:
        topology: Sites and links.
        objective: What plans make good.
        state: The file that keeps the plan.
        listen: Host and port.
        identity: Its certificate; None for no TLS, on this machine only.
        clock: The time.
        say: Tells people what happens.

    Raises:
        DefinitionError: The file holds no plan, or the address cannot be used.
    """

    def __init__(
        self,
        topology: Topology,
        objective: Any,
        state: Path,
        listen: str,
        identity: Identity | None,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        check_address("listen", listen, identity)
        self._machine = Coordinator(topology, objective, read_plan(state))
        self._published = self._machine.plan
        self._state, self._listen, self._identity, self._clock, self._say = state, listen, identity, clock, say
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._waiting: Counter[Site] = Counter()
        """By site, how many of its reports wait; beside `_lock`, as `_notices`."""
        self._notices = Notices()
        self._lock = threading.Lock()
        self._seen: frozenset[Site] = frozenset()
        self._why = ""
        """Why the last plan was made."""
        self._server: _Server | None = None

    @property
    def port(self) -> int:
        """The port at which it listens."""
        assert self._server is not None
        return int(self._server.port)

    def begin(self) -> None:
        """Take reports from now on.

        Raises:
            SiteError: The address cannot be taken.
        """
        scheme = "grpc+tcp" if self._identity is None else "grpc+tls"
        try:
            options = authority_options(self._identity)
            self._server = _Server(self._answer, self._refused, f"{scheme}://{self._listen}", **options)
        except (pa.ArrowException, OSError) as error:
            raise SiteError(
                f"The coordinator cannot take connections at {self._listen}: {plain(error)}",
                "Give an address of this machine, and a port that no other program has; and look at the certificates.",
            ) from error

    def run(self, stopped: threading.Event) -> None:
        """Plan until it is to stop."""
        while not stopped.wait(_LOOK / MICROS_PER_SECOND):
            self.look()

    def look(self) -> None:
        """Take what was reported, and make a plan if one is needed."""
        now = self._clock.monotonic()
        for report in self._taken():
            self._machine.reported(report, now)
        present = self._machine.present(now)
        for site in sorted(present ^ self._seen):
            self._say(f"{site} is there." if site in present else f"{site} was not heard of for a while.")
        self._seen = present
        question = self._machine.question(now)
        if question is not None:
            self._plan(question)
        if (plan := self._machine.plan) is not None and plan is not self._published:
            self._publish(plan)

    def _taken(self) -> list[Report]:
        """Return the reports that wait."""
        found = [self._reports.get() for _ in range(self._reports.qsize())]
        with self._lock:
            self._waiting.subtract(report.site for report in found)
        return found

    def _plan(self, question: Question) -> None:
        try:
            self._machine.planned(answer(question, self._machine.objective))
        except (TransomError, ValueError, ArithmeticError, RuntimeError) as error:  # sites go on with the last one
            self._machine.failed()
            self._tell(PLANS, f"No plan: {error}")
            return
        with self._lock:
            self._notices.passed(PLANS)
        self._why = question.why

    def _publish(self, plan: Plan) -> None:
        """Give out a plan when it is durable: versions never fall; what cannot be written now is tried again."""
        try:
            with replacing(self._state) as file:
                file.write(json.dumps(plan.to_json()).encode())
        except OSError as error:
            why = f"{self._state} cannot be written: {error.strerror}"
            self._tell(PLANS, f"Plan {plan.version} is not given out yet, as {why}.")
            return
        self._published = plan
        self._say(f"Plan {plan.version} from tick {plan.first_tick} on ({self._why}). {described(plan)}")

    def end(self) -> None:
        """Take no more reports."""
        server, self._server = self._server, None
        if server is not None:
            ending = threading.Thread(target=server.shutdown, daemon=True)
            with suppress(RuntimeError):  # no thread can start: it ends with the process
                ending.start()
                ending.join(2.0)

    def _answer(self, identity: Site, body: bytes) -> bytes:
        """Return the answer to a report; on a thread of Flight's."""
        try:
            report = Report.from_json(json.loads(body))
        except (ValueError, RecursionError) as error:
            raise SiteError(f"This is no report: {error}.", "Run the same version of Transom at all sites.") from error
        if self._identity is not None and report.site != identity:
            raise SiteError(f"The certificate is that of {identity!r}, and the report of {report.site!r}.")
        self._machine.check(report)
        self._check_clock(report)
        with self._lock:
            if self._waiting[report.site] >= MOST_WAITING:
                raise SiteError(f"{MOST_WAITING} reports of {report.site!r} wait here.", "It is to report more seldom.")
            self._waiting[report.site] += 1
        self._reports.put(report)
        found = self._published
        newer = found is not None and found.version > report.version
        return json.dumps({"plan": found.to_json() if newer and found is not None else None}).encode()

    def _check_clock(self, report: Report) -> None:
        """Refuse a report from a time that cannot be: plans would hold from a tick on that never comes.

        Raises:
            SiteError: It is.
        """
        tick = round(self._machine.topology.tick * MICROS_PER_SECOND)
        ahead = report.tick * tick - self._clock.now()
        if ahead > APART:
            raise SiteError(
                f"The clock of {report.site!r} is {format_duration(ahead)} ahead of the coordinator's.",
                "Set the clocks of both machines.",
            )

    def _refused(self, identity: Site, error: SiteError) -> None:
        """Tell people that a report was refused; on a thread of Flight's."""
        who = identity or "somebody"
        self._tell(who, f"A report of {who} is refused: {error}")

    def _tell(self, about: Site, what: str) -> None:
        """Tell people what can happen as often as reports come; on any thread."""
        with self._lock:
            text = self._notices.news(about, what, self._clock.monotonic())
        if text:
            self._say(text)


def answer(question: Question, objective: Any) -> Plan:
    """Return the plan that answers a question.

    Raises:
        DefinitionError: SciPy is not installed.
    """
    return plan(question.topology, question.flows, objective, SECONDS, question.last)


def described(found: Plan) -> str:
    """Return a plan in a few words."""
    ways = []
    for route in found.routes:
        paths = ", ".join(f"{source} to {parent}" for source, parent in route.tree.parents)
        ways.append(f"{route.flow} every {route.interval} ticks: {paths}")
    ways += [f"{left.flow} fits nowhere, {left.link[0]} to {left.link[1]} lacks most" for left in found.left_out]
    return "; ".join(ways) + "."


class Asking:
    """A site's end: tells the coordinator what is known, and hears of plans, on a thread of its own.

    Args:
        site: This site.
        address: Of the coordinator.
        name: Of its certificate.
        identity: This site's certificate; None for no TLS, on this machine only.

    Raises:
        DefinitionError: The address is none, or elsewhere without TLS.
    """

    def __init__(self, site: Site, address: str, name: str, identity: Identity | None) -> None:
        check_address("coordinator", address, identity)
        self.site, self.address, self.name, self.identity = site, address, name, identity
        self._wake: Callable[[], None] = lambda: None
        self.refused = ""
        """Why the coordinator refused the last report, or could not be reached; for people."""
        self._report: Report | None = None
        self._plans: deque[Plan] = deque(maxlen=KEPT)
        self._client: Any = None
        """The connection, while it works: to make one takes more processor time than all that is said on it."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="transom-site-reports")

    def begin(self, wake: Callable[[], None]) -> None:
        """Begin to report what `tell` was told last; `wake` is called when there is a plan."""
        self._wake = wake
        self._thread.start()

    def tell(self, report: Report) -> None:
        """Take what is to be reported next; on the loop's thread."""
        self._report = report

    def plans(self) -> list[Plan]:
        """Return the plans that came since; on the loop's thread."""
        found = []
        while self._plans:
            found.append(self._plans.popleft())
        return found

    def end(self) -> None:
        """Report no more."""
        self._stopped.set()
        if self._thread.ident is not None:  # else it did not begin
            self._thread.join(2.0)
        if not self._thread.is_alive():
            self._disconnect()

    def _connected(self) -> Any:
        """Return the connection, anew where there is none.

        Raises:
            ArrowException: There can be none.
        """
        if self._client is None:
            scheme = "grpc+tcp" if self.identity is None else "grpc+tls"
            options = client_options(self.identity, self.name, MOST_REPORT)
            self._client = fl.FlightClient(f"{scheme}://{self.address}", **options)
        return self._client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(pa.ArrowException, OSError):
                client.close()

    def _run(self) -> None:
        while not self._stopped.wait(EVERY / MICROS_PER_SECOND if self._report is not None else 0.05):
            report = self._report
            if report is not None:
                try:
                    self.ask(report)
                    self.refused = ""
                except SiteError as error:  # sites go on without
                    self.refused = str(error)

    def ask(self, report: Report) -> None:
        """Report once, and keep the plan that comes back.

        Raises:
            SiteError: The coordinator cannot be reached, or does not take the report.
        """
        try:
            action = fl.Action(REPORT, json.dumps(report.to_json()).encode())
            results = list(self._connected().do_action(action, fl.FlightCallOptions(timeout=10.0)))
            said = json.loads(results[0].body.to_pybytes())
            refused, made = said.get("refused"), said.get("plan")
            found = None if made is None else Plan.from_json(made)
        except (pa.ArrowException, OSError) as error:
            self._disconnect()
            raise SiteError(f"The coordinator at {self.address} cannot be reached: {plain(error)}") from error
        except (*WRONG, DefinitionError) as error:
            raise SiteError(f"The coordinator at {self.address} answers what is no plan: {error}") from error
        if refused:
            raise SiteError(f"The coordinator refuses the report: {refused}")
        if found is not None:
            self._plans.append(found)
            self._wake()
