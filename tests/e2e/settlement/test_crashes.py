"""The service is killed over and over while clients create and delete: nothing lost or doubled."""

import asyncio
from collections import deque
from typing import Final

import pytest

from tests.e2e.objects.pods import CARDS, demands, pod, total
from tests.e2e.objects.team import Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

KILLS: Final = 20
CLIENTS: Final = 4
CARDS_MAX: Final = 24
ADMITTED_BETWEEN_KILLS: Final = 10
LOAD_SECONDS: Final = 20.0
DOWN_PAUSE_SECONDS: Final = 0.05


class Load:
    """Clients that fill the namespace to its limit and make room again, until `stop`."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._stopping = False
        self.admitted = 0
        self.live: list[str] = []
        self._news = asyncio.Condition()

    async def client(self, name: str) -> None:
        """Create pods; delete the client's oldest when there is no room."""
        mine: deque[str] = deque()
        number = 0
        while not self._stopping:
            number += 1
            status = await self._create(f"{name}-{number}", mine)
            if status == 403 and mine:
                await self._team.delete(mine.popleft())
            elif status not in (201, 403):
                await asyncio.sleep(DOWN_PAUSE_SECONDS)
        self.live += mine

    async def admit(self, more: int) -> None:
        """Return when so many more pods were admitted than now."""
        goal = self.admitted + more
        async with asyncio.timeout(LOAD_SECONDS), self._news:
            await self._news.wait_for(lambda: self.admitted >= goal)

    def stop(self) -> None:
        """Let every client finish what it does."""
        self._stopping = True

    async def _create(self, name: str, mine: deque[str]) -> int:
        answer = await self._team.create(pod(name))
        if answer.status == 201:
            mine.append(name)
            async with self._news:
                self.admitted += 1
                self._news.notify_all()
        return answer.status


@pytest.mark.long
async def test_twenty_kills_under_load_lose_nothing_and_double_nothing(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": str(CARDS_MAX)})
    load = Load(team)
    async with asyncio.TaskGroup() as clients:
        for number in range(CLIENTS):
            clients.create_task(load.client(f"client-{number}"))
        for _ in range(KILLS):
            await load.admit(ADMITTED_BETWEEN_KILLS)
            team.service.kill()
            assert total(demands(await team.pods()))[CARDS] <= CARDS_MAX
            await team.service.run_again()
        load.stop()
    stored = [manifest["metadata"]["name"] for manifest in await team.pods()]
    assert sorted(stored) == sorted(load.live), "what clients were told is what is stored"
    assert len(stored) <= CARDS_MAX
    await team.agrees(cards=len(stored))
    assert load.admitted >= KILLS * ADMITTED_BETWEEN_KILLS
