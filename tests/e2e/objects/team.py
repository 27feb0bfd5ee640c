"""One namespace of a test: its quota, its pods, and the question whether the ledger agrees."""

import asyncio
from typing import Any, Final, NamedTuple

from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.second_webhook import SecondWebhook
from tests.e2e.harness.service import SETTLE_SECONDS, Row, Service
from tests.e2e.objects.pods import CARDS, CORES, MEMORY, demands, total

SEEN_SECONDS: Final = 30.0
"""How long news of the cluster may take to reach the ledger and its projection."""

SETTLED_SECONDS: Final = SETTLE_SECONDS + 20.0
"""How long a hold may stay open: the bound, the reads that prove it, a busy machine."""

QUOTA: Final = "gpus"

# Keys that start with `limits.` are enforced by gpuledger alone: of extended resources the native
# quota counts only `requests.`, and it would refuse first what a test means to smuggle past us.
PLENTY: Final = {
    f"limits.{CARDS}": "1000",
    f"limits.{MEMORY}": "1000000",
    f"limits.{CORES}": "100000",
}


class View(NamedTuple):
    """The usage by ledger and cluster.

    `used` is by quota and resource, `holders` and `pods` by key and resource; `reserved` and
    `holds` are what is not settled yet.
    """

    used: dict[str, dict[str, int]]
    holders: dict[str, dict[str, int]]
    pods: dict[str, dict[str, int]]
    reserved: int
    holds: int

    def agrees(self, expected: dict[str, int]) -> bool:
        """Return whether ledger and cluster agree, and have the expected sums."""
        truth = total(self.pods)
        limited = {resource for used in self.used.values() for resource in used}
        return (
            not self.reserved
            and not self.holds
            and self.holders == self.pods
            and all(used == {name: truth[name] for name in used} for used in self.used.values())
            and all(name in limited and truth[name] == expected[name] for name in expected)
        )


class Team:
    """A namespace with everything that a test does to it and asks about it."""

    def __init__(
        self, namespace: str, cluster: Cluster, service: Service, later: SecondWebhook
    ) -> None:
        self.namespace = namespace
        self.cluster = cluster
        self.service = service
        self.later = later
        self.path = f"/api/v1/namespaces/{namespace}"

    async def limit(self, hard: dict[str, str], name: str = QUOTA) -> None:
        """Create a ResourceQuota and wait until the ledger has its managed keys."""
        await self.create_quota(hard, name)
        await self.limits_are(hard, name)

    async def create_quota(self, hard: dict[str, str], name: str) -> None:
        """Create a ResourceQuota."""
        manifest = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": name},
            "spec": {"hard": hard},
        }
        await self.cluster.must("POST", f"{self.path}/resourcequotas", manifest)

    async def limits_are(self, hard: dict[str, str], name: str = QUOTA) -> None:
        """Wait until the ledger holds exactly these limits of a quota."""
        wanted = {key: int(limit) for key, limit in hard.items()}

        async def look() -> dict[str, int]:
            rows = await self.usage()
            return {row["resource"]: row["limit"] for row in rows if row["quota"] == name}

        what = f"the limits of {self.namespace}/{name} are {wanted}"
        await eventually(look, lambda seen: seen == wanted, within=SEEN_SECONDS, what=what)

    async def create(self, manifest: Manifest, **options: Any) -> Answer:
        """POST a pod and return the answer."""
        return await self.cluster.ask("POST", f"{self.path}/pods", manifest, **options)

    async def created(self, manifest: Manifest) -> Manifest:
        """POST a pod that has to be admitted and return it as stored."""
        return await self.cluster.must("POST", f"{self.path}/pods", manifest)

    async def delete(self, pod: str, grace: int = 0) -> Answer:
        """Delete a pod, by default at once."""
        return await self.cluster.ask(
            "DELETE", f"{self.path}/pods/{pod}", {"gracePeriodSeconds": grace}
        )

    async def finish(self, pod: str, phase: str = "Succeeded") -> None:
        """Report a pod as finished, as its kubelet would."""
        answer = await self.cluster.patch(
            f"{self.path}/pods/{pod}/status", {"status": {"phase": phase}}
        )
        assert answer.status == 200, answer

    async def pods(self) -> list[Manifest]:
        """List the pods by a linearizable read."""
        return await self.cluster.items(f"{self.path}/pods")

    async def usage(self) -> list[Row]:
        """Return the running service's usage of this namespace's quotas."""
        return list(await self.service.get("/v1/usage", namespace=self.namespace))

    async def holders(self) -> list[Row]:
        """Return the charged objects of this namespace, and their amounts."""
        return list(await self.service.get("/v1/holders", namespace=self.namespace))

    async def holds(self) -> list[Row]:
        """Return the open holds of this namespace."""
        return list(await self.service.get("/v1/holds", namespace=self.namespace))

    async def holds_are(self, count: int) -> list[Row]:
        """Wait until exactly so many holds are open, and return them."""
        what = f"{count} open holds in {self.namespace}"
        return await eventually(
            self.holds, lambda seen: len(seen) == count, within=SEEN_SECONDS, what=what
        )

    async def view(self) -> View:
        """Put the ledger's view and the API server's beside each other."""
        listed, usage, holders, holds = await asyncio.gather(
            self.pods(), self.usage(), self.holders(), self.holds()
        )
        used: dict[str, dict[str, int]] = {}
        for row in usage:
            used.setdefault(row["quota"], {})[_resource(row["resource"])] = row["used"]
        return View(
            used,
            {row["key"]: row["amounts"] for row in holders},
            demands(listed),
            sum(row["reserved"] for row in usage),
            len(holds),
        )

    async def agrees(self, **used: int) -> None:
        """Assert that the ledger ends where the cluster is, pod by pod and in every quota's sum.

        No hold is left.
        `cards`, `memory` and `cores`, where given, are what the test itself expects in the end.
        """
        names = {"cards": CARDS, "memory": MEMORY, "cores": CORES}
        expected = {names[word]: amount for word, amount in used.items()}
        await eventually(
            self.view,
            lambda seen: seen.agrees(expected),
            within=SETTLED_SECONDS,
            what=f"the ledger agrees with the cluster on {self.namespace}, expected {expected}",
        )


def _resource(key: str) -> str:
    return key.removeprefix("requests.").removeprefix("limits.")
