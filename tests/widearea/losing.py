"""Sites that lose checkpoints, or get old copies of them, in virtual time; and people who do what refusals say."""

from __future__ import annotations

import json
from copy import deepcopy

from tests.widearea.network import World
from tests.widearea.simulated_site import FLOWS, MS, SITES, Disk

from transom.widearea.parcels import Reason

LOOK = 2_000 * MS
"""Between two looks at what is refused."""
AGAIN = 20_000 * MS
"""A site is not run again sooner than that because something is refused."""


class Losing(World):
    """Also checkpoints are lost; a refusal that does not pass is answered with runs that accept the loss."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.copies: dict[str, list[Disk]] = {site: [] for site in SITES}
        self.helped: dict[str, int] = {}
        self.at(self.now + LOOK, self.help)

    def mishap(self) -> None:
        site, what = self.random.choice(SITES), self.random.random()
        if what < 0.2 and self.disks[site].epoch:  # there is no checkpoint before its first run
            self.copies[site].append(deepcopy(self.disks[site]))
        elif 0.2 <= what < 0.3:
            self.lose(site)
        else:
            super().mishap()

    def lose(self, site: str) -> None:
        """End a site, and begin it again with a copy of what it once had, or with nothing."""
        self.lost = True
        self.renewals += 1
        nothing = Disk(f"ck-{site}-{self.renewals}")
        self.crash(site)
        self.disks[site] = deepcopy(self.random.choice([*self.copies[site], nothing]))

    def start(self, site: str) -> None:
        super().start(site)
        self.accepts.discard(site)  # it is asked for once

    def help(self) -> None:
        """Run sites again so that they accept what was lost, as refusals say."""
        for node in [*self.nodes.values()]:
            for sender in node.senders if node is not None else ():
                if sender.refusal is not None:
                    there = {FLOWS[sender.flow].destination}
                    if sender.refusal.reason is Reason.BEHIND:
                        there.add(sender.site)
                    for site in sorted(there):
                        self.run_anew(site)
        self.at(self.now + LOOK, self.help)

    def run_anew(self, site: str) -> None:
        if self.now >= self.helped.get(site, 0) + AGAIN:
            self.helped[site] = self.now
            self.accepts.add(site)
            if self.nodes[site] is not None:
                self.crash(site)

    def check(self) -> None:
        """Since something was lost last, every cut of every site is merged exactly once, in order."""
        for flow, ends in FLOWS.items():
            at: dict[str, tuple[str, int]] = {}
            since: dict[str, list[int]] = {}
            for parcel in self.disks[ends.destination].inbox[flow]:
                rows = json.loads(parcel.body) if parcel.body else []
                for part in parcel.parts:
                    if part.anew:
                        since[part.site] = []
                    else:
                        incarnation, upto = at.get(part.site, (part.incarnation, 0))
                        assert part.incarnation == incarnation
                        assert part.after == upto or (part.empty and part.upto == upto)
                    at[part.site] = part.incarnation, part.upto
                    mine = [(cut, tag) for site, cut, tag in rows if site == part.site]
                    assert [cut for cut, _ in mine] == [*range(part.after + 1, part.upto + 1)]
                    since.setdefault(part.site, []).extend(tag for _, tag in mine)
            for site in ends.sources:
                disk = self.disks[site]
                assert at.get(site, (disk.incarnation(flow), 0)) == (disk.incarnation(flow), disk.cuts)
                kept = since.get(site, [])
                assert kept == disk.rows[disk.cuts - len(kept) :], (flow, site)
