"""An extender behind HTTP: nodes announce cards as HAMi does, requests are kube-scheduler's."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import httpx2
import msgspec
from starlette.applications import Starlette
from support.harness.extender_harness import (
    CLUSTER,
    NAMESPACE,
    RULES,
    ExtenderReplica,
    ModelServer,
    replica,
)

from extender.extender_routes import endpoints
from extender.scheduler_extender import ExtenderSettings
from ledger.core.model import commands
from ledger.core.model.accounts import quota
from ledger.core.model.cards import OWN
from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Pod
from ledger.kube.hami import annotation_keys
from ledger.kube.hami.node_announcement import read_announcement
from ledger.kube.requests.pod_demand import demand_of
from ledger.runtime.http.direct_endpoints import routes

BODY_MAX: Final = 2_000_000
SPACE: Final = f"{CLUSTER}/{NAMESPACE}"
WORDS: Final = annotation_keys.VENDOR_ANNOTATIONS["nvidia"]

Limits = Mapping[str, Any]


def listed(*cards: Mapping[str, Any], **common: Any) -> str:
    """Return a device plugin's announcement of its cards: by default GPU-0, GPU-1, …

    Each has 10 slots, 16,000 MiB and all its cores, and is healthy.
    """
    usual = {"count": 10, "devmem": 16_000, "devcore": 100, "type": "NVIDIA A10", "health": True}
    return json.dumps(
        [
            {"id": f"GPU-{number}", "index": number, "mode": "hami-core", **usual, **common, **card}
            for number, card in enumerate(cards)
        ]
    )


def container(**asked: Any) -> dict[str, Any]:
    """Return a container; amounts are limits of nvidia.com/…, `restart` makes a sidecar of it."""
    restart = asked.pop("restart", False)
    limits = {f"nvidia.com/{key.replace('_', '-')}": str(amount) for key, amount in asked.items()}
    body: dict[str, Any] = {"resources": {"limits": limits} if limits else {}}
    return body | ({"restartPolicy": "Always"} if restart else {})


def pod(
    name: str, *containers: Any, init: tuple[Any, ...] = (), annotations: Limits | None = None
) -> dict[str, Any]:
    """Return a pod as the scheduler sends it."""
    named = [{"name": f"c{number}", **body} for number, body in enumerate(containers)]
    first = [{"name": f"i{number}", **body} for number, body in enumerate(init)]
    meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
    return {
        "metadata": {**meta, "annotations": dict(annotations or {})},
        "spec": {"containers": named, "initContainers": first},
    }


class HttpExtender:
    """Nodes, pods, and the verbs of the extender."""

    def __init__(
        self, extender_replica: ExtenderReplica, server: ModelServer, client: httpx2.AsyncClient
    ) -> None:
        self.replica, self.server, self.client = extender_replica, server, client

    async def announce(self, node: str, register: str, **annotations: str) -> None:
        """Let a node announce its cards; further annotations are named by their key in `hami`."""
        more = {getattr(annotation_keys, key): text for key, text in annotations.items()}
        told = read_announcement({WORDS.register: register, **more}, OWN)
        assert not told.problem, told.problem
        command = commands.RegisterCards(f"{CLUSTER}/{node}", told.keeper, told.cards)
        await self.replica.tell(command)
        self.replica.inventory.set_scores(node, told.scores)

    async def limit(self, **hard: int) -> None:
        """Limit resources nvidia.com/… of the namespace."""
        limits = {f"limits.nvidia.com/{key}": amount for key, amount in hard.items()}
        await self.replica.tell(
            commands.SetLimits(quota(CLUSTER, NAMESPACE, "q"), (SPACE,), limits)
        )

    async def filter(self, manifest: dict[str, Any], *nodes: str) -> Any:
        """Ask where a pod fits."""
        answer = await self._post("filter", {"Pod": manifest, "NodeNames": list(nodes or ("n1",))})
        assert answer["Error"] == ""
        return answer

    async def fits(self, manifest: dict[str, Any], *nodes: str) -> list[str]:
        """Return the nodes where a pod fits."""
        return list((await self.filter(manifest, *nodes))["NodeNames"])

    async def why_not(self, manifest: dict[str, Any], node: str = "n1") -> str:
        """Return why a pod does not fit on a node, empty when it does."""
        answer = await self.filter(manifest, node)
        failed = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
        return str(failed.get(node, ""))

    async def scores(self, manifest: dict[str, Any], *nodes: str) -> dict[str, int]:
        """Return the scores of nodes."""
        answer = await self._post("prioritize", {"Pod": manifest, "NodeNames": list(nodes)})
        return {each["Host"]: each["Score"] for each in answer}

    async def create(self, manifest: dict[str, Any]) -> None:
        """Create a pod, and have the ledger charge it."""
        kept = msgspec.convert(manifest, Pod)
        self.server.add(kept)
        meta, demand = kept.metadata, demand_of(kept, RULES)
        assert not isinstance(demand, Denial), demand.message
        key = f"pods/{meta.name}"
        await self.replica.tell(commands.Reserve(SPACE, key, meta.uid, demand.amounts))

    async def bind(self, manifest: dict[str, Any], node: str = "n1") -> str:
        """Create a pod, and bind it; return the cards that its node is to hand out."""
        await self.create(manifest)
        meta = manifest["metadata"]
        answer = await self._post(
            "bind",
            {
                "PodName": meta["name"],
                "PodNamespace": meta["namespace"],
                "PodUID": meta["uid"],
                "Node": node,
            },
        )
        assert answer["Error"] == "", answer["Error"]
        return (self.server.pods[meta["name"]].metadata.annotations or {}).get(WORDS.allocated, "")

    async def cards(self, manifest: dict[str, Any], node: str = "n1") -> list[str]:
        """Bind a pod, and return the uuids of its cards, slot by slot."""
        text = await self.bind(manifest, node)
        return [card.split(",")[0] for card in text.replace(";", "").split(":") if card]

    async def ended(self, manifest: dict[str, Any]) -> None:
        """Let a pod be deleted."""
        meta = manifest["metadata"]
        await self.replica.tell(commands.Observe(SPACE, f"pods/{meta['name']}", meta["uid"], 1, {}))
        await self.replica.tell(
            commands.End(SPACE, f"pods/{meta['name']}", meta["uid"], 2, "deleted")
        )

    async def _post(self, verb: str, args: Any) -> Any:
        answer = await self.client.post(f"/extender/{verb}", json=args)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextlib.asynccontextmanager
async def http_extender(settings: ExtenderSettings | None = None) -> AsyncIterator[HttpExtender]:
    """Run an extender behind HTTP for the block."""
    server = ModelServer()
    async with replica(server=server, settings=settings) as extender_replica:
        app = Starlette(routes=routes(endpoints(extender_replica.extender, BODY_MAX)))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            yield HttpExtender(extender_replica, server, client)
