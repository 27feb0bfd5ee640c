"""Clients of two clusters that contend for one quota: they fill it up and make room again."""

import asyncio
from collections import Counter, deque
from contextlib import suppress
from typing import Final

from tests.e2e.deployment.support.shared_quota import SharedQuota
from tests.e2e.deployment.support.two_clusters import ClusterSite
from tests.e2e.objects.pods import CARDS, demands, pod, total
from tests.e2e.objects.workloads import replicated

LOAD_SECONDS: Final = 60.0
LIKELY_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.05
HELD_MAX: Final = 4
"""Pods that a client keeps, so that no cluster takes everything."""

SCALES: Final = (3, 1, 4, 2)
DEPLOYMENT: Final = "web"


class ContendingClients:
    """Clients that create, delete and scale at both clusters until `stop`.

    By cluster, `admitted` counts the pods they were given, `refused` how often there was no room,
    `cut_off` how often the log was out of reach. `odd` are all other refusals.
    `most` is the largest number of cards that was seen taken in both together.
    """

    def __init__(self, shared: SharedQuota) -> None:
        self.admitted: Counter[str] = Counter()
        self.cut_off: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.odd: list[str] = []
        self.most = 0
        self._shared = shared
        self._stopping = False

    async def run(self) -> None:
        """Keep all clients going."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            for site in self._shared.sites.both:
                tasks.create_task(self._scale(site))
                for number in range(2):
                    tasks.create_task(self._fill(site, f"client-{number}"))

    def stop(self) -> None:
        """Let every client finish what it does."""
        self._stopping = True

    async def reaches(self, counts: Counter[str], site: ClusterSite, more: int) -> None:
        """Return when a count of a cluster is so much higher than now."""
        goal = counts[site.name] + more
        async with asyncio.timeout(LOAD_SECONDS):
            while counts[site.name] < goal:  # noqa: ASYNC110 - clients in other tasks count
                await asyncio.sleep(PAUSE_SECONDS)

    async def may_reach(self, counts: Counter[str], site: ClusterSite, more: int) -> None:
        """Wait a little for what is likely and not certain.

        Attempts of a cluster that is cut off hold their room until it is back, so there may be none
        left for the other.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LIKELY_SECONDS):
                await self.reaches(counts, site, more)

    async def _fill(self, site: ClusterSite, client: str) -> None:
        """Create pods; delete the client's oldest when there is no room."""
        mine: deque[str] = deque()
        number = 0
        while not self._stopping:
            number += 1
            name = f"{client}-{number}"
            answer = await self._shared.create(site, "pods", pod(name))
            if answer.status == 201:
                mine.append(name)
                self.admitted[site.name] += 1
                make_room = len(mine) > HELD_MAX
            else:
                make_room = self._is_full(site, answer.message)
            if make_room and mine:
                await self._shared.delete(site, mine.popleft())
            await asyncio.sleep(PAUSE_SECONDS)

    def _is_full(self, site: ClusterSite, refusal: str) -> bool:
        if "UniverseExceeded" in refusal:
            self.refused[site.name] += 1
            return True
        if "is out of reach" in refusal:
            self.cut_off[site.name] += 1
        elif site is self._shared.sites.west or "LedgerUnavailable" not in refusal:
            self.odd.append(refusal)  # an edge may also find that the hub is too slow
        return False

    async def _scale(self, site: ClusterSite) -> None:
        """Scale a Deployment up and down; its pods are made by its controller."""
        await self._shared.create(site, "deployments", replicated("Deployment", 1, DEPLOYMENT))
        number = 0
        while not self._stopping:
            number += 1
            await self._shared.scale(site, DEPLOYMENT, SCALES[number % len(SCALES)])
            await asyncio.sleep(PAUSE_SECONDS)

    async def _watch(self) -> None:
        """Note how much is taken at once, from plain lists."""
        while not self._stopping:
            self.most = max(self.most, await self.taken())
            await asyncio.sleep(PAUSE_SECONDS)

    async def taken(self) -> int:
        """Return how many cards pods take that exist at one moment, at least.

        The second cluster is listed while those pods of the first exist that both lists have.
        """
        west, east = self._shared.sites.both
        before = await self._shared.pods(west)
        beyond = await self._shared.pods(east)
        after = {manifest["metadata"]["uid"] for manifest in await self._shared.pods(west)}
        still = [manifest for manifest in before if manifest["metadata"]["uid"] in after]
        return sum(total(demands(listed))[CARDS] for listed in (still, beyond))
