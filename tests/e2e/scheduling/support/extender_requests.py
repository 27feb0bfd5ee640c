"""kube-scheduler's requests to an extender about one pod, sent without a scheduler."""

import asyncio
import ssl
import time
from typing import Any, Final

import aiohttp

from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.service import Service
from tests.e2e.scheduling.support.team import SchedulingTeam

PAUSE_SECONDS: Final = 1.0
"""The back-off of the scheduler after a bind that failed."""

REQUEST_SECONDS: Final = 30.0
"""The extender's `httpTimeout`."""


class ExtenderClient:
    """Has one extender place pods of a namespace: filter, then bind, as kube-scheduler does."""

    def __init__(self, team: SchedulingTeam, extender: Service) -> None:
        self.errors: list[str] = []
        self._team = team
        self._url = f"https://{extender.address}/extender"
        self._tls = ssl.create_default_context(cafile=str(extender.authority))

    async def bind(self, name: str, node: str, pod: Manifest | None = None) -> str:
        """Ask once for a pod to be bound to a node, and return why it is not.

        `pod` is the pod as a scheduler has it in its cache, by default as it is stored.
        """
        if pod is None:
            pod = await self._team.cluster.must("GET", f"{self._team.path}/pods/{name}")
        meta = pod["metadata"]
        filtered = await self._ask("filter", {"Pod": pod, "NodeNames": [node]})
        if filtered.get("Error") or not filtered.get("NodeNames"):
            return f"filter: {filtered}"
        asked = {"PodName": name, "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        return str((await self._ask("bind", asked | {"Node": node})).get("Error") or "")

    async def seconds_until_bound(self, name: str, node: str, *, within: float) -> float:
        """Ask again and again until a pod is bound; return how long that took.

        `errors` has every answer that was none. Fails after `within` seconds.
        """
        begun = time.monotonic()
        while True:
            error = await self.bind(name, node)
            took = time.monotonic() - begun
            if not error:
                return took
            self.errors.append(f"after {took:.1f} s: {error}")
            assert took < within, f"{name} is not bound:\n" + "\n".join(self.errors)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _ask(self, verb: str, body: Manifest) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"{self._url}/{verb}", json=body, ssl=self._tls) as answer,
        ):
            content: dict[str, Any] = await answer.json()
            return content
