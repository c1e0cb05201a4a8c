"""Queues: how long one waits for the loop's thread, for a sink, for the next cut of a stream, and for a slot.

The loop's thread and each sink are queues with one server (G/G/1). The mean wait is Kingman's, as Marchal writes it,
with the factor of Krämer and Langenbach-Belz for arrivals that are more regular than random ones. The second moment is
Takács's, exact for random arrivals, times the (1 + load)th power of the ratio of the means, which is right where few
wait and where nearly all do. Against simulation with loads of 0.3 to 0.9 and squared coefficients of variation of 0.25
to 2 of the service: exact for random arrivals; for more regular ones mean and deviation are within 0.15 of a service
time plus 12 %; for bursts (2) the mean is up to 30 % too low at a load of 0.3, 12 % at 0.6.

A stream is served through a gate: a cut takes what waits, so its length and the wait before it determine each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from transom.planning.moments import NEVER, Moments

SECANTS = 6
"""Steps after which a cycle that still moves is looked for by bisection."""
NEAR = 1e-5
"""Relative step of the secants at which a cycle is reached."""
AROUND = 2e-3
"""So far around a cycle that is nearly right it is looked for, as a part of it."""
CLOSE = 1e-4
"""Relative width of the interval at which bisection ends."""
LONGEST = 1e3
"""No cycle is longer, seconds: a stream that would need one does not keep up."""


def third_moment(time: Moments) -> float:
    """Return E[S^3] of a time of which only mean and variance are known: that of the gamma law with these."""
    scv = time.variance / time.mean**2 if time.mean > 0 else 0.0
    return time.mean**3 * (1 + scv) * (1 + 2 * scv)


def queueing(rate: float, regular: float, service: Moments) -> Moments:
    """Return mean and variance of the wait in a G/G/1 queue, seconds; infinite if more comes than can be served.

    Args:
        rate: Arrivals per second.
        regular: Squared coefficient of variation of the times between arrivals: 0 like clockwork, 1 at random.
        service: Of one arrival.
    """
    load = rate * service.mean
    if load <= 0:
        return Moments()
    if load >= 1:
        return NEVER
    varied = service.variance / service.mean**2
    random = load / (1 - load) * (1 + varied) / 2 * service.mean
    mean = load / (1 - load) * (regular + varied) / 2 * service.mean
    if regular < 1:
        mean *= math.exp(-2 * (1 - load) * (1 - regular) ** 2 / (3 * load * max(regular + varied, 1e-9)))
    takacs = random**2 + rate * third_moment(service) / (3 * (1 - load))
    square = (takacs + random**2) * (mean / random) ** (1 + load)
    return Moments(mean, max(0.0, square - mean**2))


def cycle(
    rate: float, trigger: float, piece: float, seconds: Callable[[float], float], near: float = math.inf
) -> float:
    """Return the time from one cut of a stream to the next, T = max(trigger, piece, seconds(rate T)); or infinity.

    Args:
        rate: Rows per second.
        trigger: Least time between two starts, seconds.
        piece: Time from one arrival of rows to the next, seconds: no cut is made of nothing.
        seconds: Of a cut with so many rows, and until the next one; infinite if it never ends.
        near: Where it was when something else was a little different; there it is looked for first.

    Found by secants (Steffensen's method), from below; by bisection where the time of a cut has steps, as with the
    number of its tasks. Where the rows of a cut cost more than the time in which they came, however many they are,
    there is none.
    """

    def after(length: float) -> float:
        return max(trigger, piece, seconds(rate * length))

    if near < LONGEST:
        low, high = (1 - AROUND) * near, (1 + AROUND) * near
        if (above := after(low) - low) > 0 >= (below := after(high) - high):
            return _between(after, low, above, high, below)
    now = least = after(0.0)
    if least > LONGEST:
        return math.inf
    for _ in range(SECANTS):
        then = after(now)
        if abs(then - now) <= NEAR * now:
            return then if then <= LONGEST else math.inf
        further = after(then)
        slope = (further - then) / (then - now)
        if slope >= 1 or further < now:
            break
        now = max(min(least, then, further), now + (then - now) / (1 - slope))
    return _crossing(after, least)


def _crossing(after: Callable[[float], float], low: float) -> float:
    """Return a length that the next cycle does not exceed, near one that it does; infinity if there is none."""
    if after(low) < low:  # longer cuts may be followed sooner
        low = 0.0
    high = 2 * low or after(0.0)
    while after(high) > high:
        low, high = high, 3 * high
        if high > LONGEST:
            return math.inf
    return _between(after, low, after(low) - low, high, after(high) - high)


def _between(after: Callable[[float], float], low: float, above: float, high: float, below: float) -> float:
    """Return such a length between two, given by how much the next cycle exceeds them: the first, not the other."""
    halve = False
    while high - low > CLOSE * high:
        # On a line, false position is there at once; at a step it creeps, so that every other look is in the middle.
        middle = (low + high) / 2 if halve else low + (high - low) * min(0.99, max(0.01, above / (above - below)))
        halve = not halve
        off = after(middle) - middle
        if abs(off) <= NEAR * middle:
            return middle
        if off > 0:
            low, above = middle, off
        else:
            high, below = middle, off
    return high


def waiting_share(length: Moments, piece: float, regular: float) -> float:
    """Return which share of the arrivals does not find the stream at rest.

    If pieces come less often than cuts may start, one that comes late enough does. For pieces at random times, g apart
    on average, a cycle T takes in T/g + exp(-T/g) of them, and all but the last wait. Those that come like clockwork
    all find it at rest if cuts are always shorter than the time between two; as single cuts are longer than others,
    pieces wait as in a queue, but never longer than a cut, as that takes all that wait. Both bounds of the mean wait go
    together like resistors side by side.

    Args:
        length: Time that must pass between two starts, T: the trigger or the cut, seconds.
        piece: Mean time from one arrival to the next, seconds.
        regular: Squared coefficient of variation of that, 0 to 1.
    """
    mean = length.mean
    if piece <= 0 or mean <= 0:
        return 1.0
    at_random = mean / piece / (mean / piece + math.exp(-mean / piece))
    queue = queueing(1 / piece, 0.0, length).mean / (mean / 2)
    like_clockwork = queue / (1 + queue) if math.isfinite(queue) else 1.0
    return min(1.0, regular) * at_random + (1 - min(1.0, regular)) * like_clockwork


def gate_wait(length: Moments, piece: float, regular: float) -> Moments:
    """Return how long rows wait for the next cut of their stream.

    What arrives while a cut is under way, or the trigger since its start, waits for the next one, anything up to the
    whole cycle with equal chance (E[T^2] / 2 E[T] over cycles of several lengths, see `model`). What finds the stream
    at rest does not wait.

    Args:
        length: Time that must pass between two starts, T: the trigger or the cut, seconds. Its spread counts only for
            how many find the stream at rest.
        piece: Mean time from one arrival to the next, seconds.
        regular: Squared coefficient of variation of that, 0 to 1.
    """
    return Moments.spread(length.mean).in_share(waiting_share(length, piece, regular))


@dataclass(frozen=True)
class Shared:
    """A stream among those that share the slots: a finite source, with one job at a time."""

    job: Moments
    """Of one of its jobs, seconds."""
    cycle: float
    """From one of its jobs to the next, seconds, with the wait for a slot in it."""
    wait: float = 0.0
    """Mean wait for a slot, seconds."""

    @cached_property
    def running(self) -> float:
        """Share of the time in which a job of it runs."""
        return min(1.0, self.job.mean / self.cycle) if self.job.mean > 0 else 0.0

    @cached_property
    def waiting(self) -> float:
        """Share of the time in which one waits for a slot."""
        return min(1.0 - self.running, self.wait / self.cycle) if self.cycle > 0 else 0.0


def _running(shares: Sequence[float], most: int) -> list[float]:
    """Return the chances that none, one, two, ... up to `most` of the streams run, independent of each other."""
    chances = [1.0] + [0.0] * most
    for runs in shares:
        rests = 1 - runs
        for count in range(most, 0, -1):
            chances[count] = rests * chances[count] + runs * chances[count - 1]
        chances[0] *= rests
    return chances


def left(others: Sequence[tuple[float, float]], slots: int, cores: float) -> list[tuple[float, float]]:
    """Return how many cores are left for the tasks of a job, each number with its share of the jobs.

    Who arrives sees the others as they are at any moment; beside it there run as many as there are other slots. Each
    keeps as many cores busy as they do on average while they have tasks; but all have the same part where those are too
    many: who comes first has what it needs, and who comes later what is left, so that on average they do. Whoever tells
    of a stream counts only as much time as all of its tasks take at once: with those that are left when most have
    ended, it has fewer cores for longer, and what two jobs need together seems to be there when it is not.

    Args:
        others: Of each other stream, the share of the time in which it has all its tasks, and the cores that they keep
            busy on average over all the time.
        slots: Jobs at once.
        cores: That there are.
    """
    most = min(slots - 1, len(others))
    working = sum(share for share, _ in others)
    if most == 0 or working <= 0:
        return [(1.0, cores)]
    each = sum(busy for _, busy in others) / working
    chances = _running([share for share, _ in others], most)
    chances[most] += max(0.0, 1 - sum(chances))
    return [
        (chance, max(cores - count * each, cores / (count + 1))) for count, chance in enumerate(chances) if chance > 0
    ]


def slot_wait(others: Sequence[Shared], slots: int) -> Moments:
    """Return how long a job waits for one of the slots, first come first served.

    Who arrives sees the other streams as they are at any moment (the arrival theorem of closed networks, Reiser and
    Lavenberg 1980): with all slots busy it waits for the first job to end, and for those that wait already. The others
    are taken for independent of each other, each with a job at its own share of the time. For the variance what is left
    of the first job is taken for exponential, and how many wait for a Poisson number: against simulation of 2 to 8
    streams mean and deviation are within a tenth of a job plus 20 %; where 8 nearly always wait for one slot the
    deviation is up to two thirds too large.
    """
    if len(others) < slots:
        return Moments()
    work = sum(other.running for other in others)
    busy = max(0.0, 1 - sum(_running([other.running for other in others], slots - 1)))
    if busy <= 0 or work <= 0:
        return Moments()
    rest = (
        sum(other.running * other.job.square / other.job.mean for other in others if other.running) / work / 2 / slots
    )
    first = Moments(busy * rest, busy * 2 * rest**2 - (busy * rest) ** 2)
    queue = sum(other.waiting * other.job.mean for other in others) / slots
    return first + Moments(queue, sum(other.waiting * other.job.square for other in others) / slots**2)


def thread_wait(others: Sequence[tuple[float, float, float]]) -> Moments:
    """Return the wait for the loop's thread, which does so much for the other streams."""
    often, times, squares = (sum(each[place] for each in others) for place in range(3))
    if often <= 0:
        return Moments()
    mean = times / often
    return queueing(often, 1.0, Moments(mean, max(0.0, squares / often - mean**2)))
