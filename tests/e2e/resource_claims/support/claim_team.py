"""One namespace of a test of resource claims."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

from tests.e2e.harness.cluster import Answer, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.second_webhook import SecondWebhook
from tests.e2e.harness.service import Row
from tests.e2e.objects.pods import CARDS, CORES, MEMORY
from tests.e2e.objects.team import QUOTA, SETTLED_SECONDS, Team
from tests.e2e.resource_claims.support.claim_cluster import ClaimCluster
from tests.e2e.resource_claims.support.claim_supply import API

Seen = TypeVar("Seen")

ALLOCATED_SECONDS: Final = 60.0
NAMES: Final = {"cards": CARDS, "memory": MEMORY, "cores": CORES}
TEMPLATE_OF: Final = "resource.kubernetes.io/pod-claim-name"

_NO_WEBHOOK: Final = cast("SecondWebhook", None)
_PATHS: Final = {
    "Pod": ("/api/v1", "pods"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "ResourceClaim": (API, "resourceclaims"),
    "ResourceClaimTemplate": (API, "resourceclaimtemplates"),
}


class ClaimTeam(Team):
    """A namespace with a new name, its pods, claims and templates."""

    def __init__(self, yard: ClaimCluster) -> None:
        name = f"team-{uuid.uuid4().hex[:8]}"
        super().__init__(name, yard.cluster, yard.service, _NO_WEBHOOK)
        self.yard = yard

    async def open(self, **limits: int) -> None:
        """Make the namespace with a quota of these limits: `cards`, `memory`, `cores`."""
        manifest = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": self.namespace},
        }
        await self.cluster.must("POST", "/api/v1/namespaces", manifest)
        if limits:
            await self.limit(
                {f"limits.{NAMES[name]}": str(limit) for name, limit in limits.items()}
            )

    @property
    def gate(self) -> dict[str, str]:
        """Return the label of nodes that pods of this namespace may wait for."""
        return {f"e2e.gpuledger.io/{self.namespace}": "open"}

    async def open_gate(self, node: str) -> None:
        """Give a node this label."""
        opened = {"metadata": {"labels": self.gate}}
        answer = await self.cluster.patch(f"/api/v1/nodes/{node}", opened)
        assert answer.status == 200, answer

    def place(self, kind: str, name: str = "") -> str:
        """Return the path of a kind's objects here, or of one of them."""
        group, resource = _PATHS[kind]
        place = f"{group}/namespaces/{self.namespace}/{resource}"
        return f"{place}/{name}" if name else place

    async def attempt(self, manifest: Manifest, user: str = "", **options: Any) -> Answer:
        """POST an object, as another user if given, and return the answer."""
        cluster = self.cluster.as_user(user) if user else self.cluster
        return await cluster.ask("POST", self.place(manifest["kind"]), manifest, **options)

    async def make(self, *manifests: Manifest) -> list[Manifest]:
        """POST objects that have to be admitted, and return them as stored."""
        return [
            await self.cluster.must("POST", self.place(manifest["kind"]), manifest)
            for manifest in manifests
        ]

    async def refused(self, manifest: Manifest, *words: str, user: str = "") -> str:
        """POST an object that has to be denied with these words, and return the message."""
        answer = await self.attempt(manifest, user)
        assert answer.status == 403, (answer.status, answer.message, answer.warnings)
        assert all(word in answer.message for word in words), answer.message
        return answer.message

    async def until(
        self, look: Callable[[], Awaitable[Seen]], wanted: Callable[[Seen], bool], what: str
    ) -> Seen:
        """Look until the value is as wanted, and return it."""
        return await eventually(look, wanted, within=ALLOCATED_SECONDS, what=what)

    async def until_refused(self, manifest: Manifest, *words: str) -> None:
        """Try a dry run of a POST until it is denied with these words."""

        async def look() -> Answer:
            return await self.attempt(manifest, params={"dryRun": "All"})

        await eventually(
            look,
            lambda answer: answer.status == 403 and all(word in answer.message for word in words),
            within=ALLOCATED_SECONDS,
            what=f"{manifest['kind']} {manifest['metadata']['name']} is denied with {words}",
        )

    async def select_by(self, name: str, expression: str) -> None:
        """Change the expression of a device class."""
        change = {"spec": {"selectors": [{"cel": {"expression": expression}}]}}
        answer = await self.cluster.patch(f"{API}/deviceclasses/{name}", change)
        assert answer.status == 200, answer

    async def remove(self, kind: str, *names: str) -> None:
        """Delete objects at once."""
        for name in names:
            await self.cluster.must("DELETE", self.place(kind, name), {"gracePeriodSeconds": 0})

    async def erase(self, kind: str, name: str) -> Answer:
        """DELETE an object at once and return the answer."""
        return await self.cluster.ask("DELETE", self.place(kind, name), {"gracePeriodSeconds": 0})

    async def scale(self, name: str, replicas: int) -> Answer:
        """Set the number of a Deployment's pods and return the answer."""
        path = f"{self.place('Deployment', name)}/scale"
        return await self.cluster.patch(path, {"spec": {"replicas": replicas}})

    async def clear(self) -> None:
        """Delete all objects here."""
        for kind in ("Deployment", "Pod", "ResourceClaim", "ResourceClaimTemplate"):
            answer = await self.cluster.ask("DELETE", self.place(kind), {"gracePeriodSeconds": 0})
            assert answer.status == 200, answer

    async def listed(self, kind: str) -> list[Manifest]:
        """List the objects of a kind by a linearizable read, with their kind."""
        items = await self.cluster.items(self.place(kind))
        return [{**item, "kind": kind} for item in items]

    async def allocated(self, count: int) -> list[Manifest]:
        """Wait until so many claims are allocated, and return these."""

        async def look() -> list[Manifest]:
            claims = await self.listed("ResourceClaim")
            return [each for each in claims if "allocation" in each.get("status", {})]

        return await eventually(
            look,
            lambda seen: len(seen) == count,
            within=ALLOCATED_SECONDS,
            what=f"{count} claims of {self.namespace} are allocated",
        )

    async def claims_are(self, count: int) -> list[Manifest]:
        """Wait until so many claims exist, and return them."""
        return await eventually(
            lambda: self.listed("ResourceClaim"),
            lambda seen: len(seen) == count,
            within=ALLOCATED_SECONDS,
            what=f"{self.namespace} has {count} claims",
        )

    async def charged(self) -> dict[str, int]:
        """Return the used amounts of the quota by `cards`, `memory` and `cores`."""
        words = {f"limits.{name}": word for word, name in NAMES.items()}
        return {
            words[row["resource"]]: row["used"]
            for row in await self.usage()
            if row["quota"] == QUOTA and row["resource"] in words
        }

    async def charge_is(self, **amounts: int) -> None:
        """Wait until the quota has these used amounts and no hold is open."""

        async def look() -> tuple[dict[str, int], int]:
            used = await self.charged()
            return {word: used.get(word, 0) for word in amounts}, len(await self.holds())

        await eventually(
            look,
            lambda seen: seen == (amounts, 0),
            within=SETTLED_SECONDS,
            what=f"{self.namespace} is charged {amounts}, and no hold is open",
        )

    async def holder(self, key: str) -> Row | None:
        """Return the holder with a key, None if nothing is charged there."""
        rows = await self.service.get("/v1/holders", namespace=self.namespace, pods="true")
        return next((row for row in rows if row["key"] == key), None)

    async def reservations(self) -> list[Row]:
        """Return the reservations of reviews here, oldest first, from the log."""
        events = await self.service.events(self.namespace)
        return [event for event in events if event["type"] == "Reserved"]
