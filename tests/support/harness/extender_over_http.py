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

from extender.app import routes
from extender.scheduler_extender import ExtenderSettings
from ledger.core.model import commands
from ledger.core.model.accounts import quota
from ledger.core.model.cards import OWN
from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Pod
from ledger.kube.hami import annotation_keys
from ledger.kube.hami.node_announcement import read_announcement
from ledger.kube.requests.pod_demand import demand_of

BODY_MAX: Final = 2_000_000
SPACE: Final = f"{CLUSTER}/{NAMESPACE}"
WORDS: Final = annotation_keys.VENDOR_ANNOTATIONS["nvidia"]

Limits = Mapping[str, Any]


def listed(*found: Mapping[str, Any], **common: Any) -> str:
    """Return a device plugin's announcement of its cards: by default GPU-0, GPU-1, …

    Each has 10 slots, 16,000 MiB and all its cores, and is healthy.
    """
    usual = {"count": 10, "devmem": 16_000, "devcore": 100, "type": "NVIDIA A10", "health": True}
    return json.dumps(
        [
            {"id": f"GPU-{number}", "index": number, "mode": "hami-core", **usual, **common, **one}
            for number, one in enumerate(found)
        ]
    )


def container(**asked: Any) -> dict[str, Any]:
    """Return a container; amounts are limits of nvidia.com/…, `restart` makes a sidecar of it."""
    restart = asked.pop("restart", False)
    limits = {f"nvidia.com/{key.replace('_', '-')}": str(one) for key, one in asked.items()}
    found: dict[str, Any] = {"resources": {"limits": limits} if limits else {}}
    return found | ({"restartPolicy": "Always"} if restart else {})


def pod(
    name: str, *containers: Any, init: tuple[Any, ...] = (), annotations: Limits | None = None
) -> dict[str, Any]:
    """Return a pod as the scheduler sends it."""
    named = [{"name": f"c{number}", **one} for number, one in enumerate(containers)]
    first = [{"name": f"i{number}", **one} for number, one in enumerate(init)]
    meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
    return {
        "metadata": {**meta, "annotations": dict(annotations or {})},
        "spec": {"containers": named, "initContainers": first},
    }


class HttpExtender:
    """Nodes, pods, and the verbs of the extender."""

    def __init__(
        self, found: ExtenderReplica, server: ModelServer, client: httpx2.AsyncClient
    ) -> None:
        self.found, self.server, self.client = found, server, client

    async def announce(self, node: str, register: str, **annotations: str) -> None:
        """Let a node announce its cards; further annotations are named by their key in `hami`."""
        more = {getattr(annotation_keys, key): text for key, text in annotations.items()}
        told = read_announcement({WORDS.register: register, **more}, OWN)
        assert not told.problem, told.problem
        command = commands.RegisterCards(f"{CLUSTER}/{node}", told.keeper, told.cards)
        await self.found.tell(command)
        self.found.inventory.set_scores(node, told.scores)

    async def limit(self, **hard: int) -> None:
        """Limit resources nvidia.com/… of the namespace."""
        limits = {f"limits.nvidia.com/{key}": amount for key, amount in hard.items()}
        await self.found.tell(commands.SetLimits(quota(CLUSTER, NAMESPACE, "q"), (SPACE,), limits))

    async def filter(self, one: dict[str, Any], *nodes: str) -> Any:
        """Ask where a pod fits."""
        answer = await self._post("filter", {"Pod": one, "NodeNames": list(nodes or ("n1",))})
        assert answer["Error"] == ""
        return answer

    async def fits(self, one: dict[str, Any], *nodes: str) -> list[str]:
        """Return the nodes where a pod fits."""
        return list((await self.filter(one, *nodes))["NodeNames"])

    async def why_not(self, one: dict[str, Any], node: str = "n1") -> str:
        """Return why a pod does not fit on a node, empty when it does."""
        answer = await self.filter(one, node)
        failed = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
        return str(failed.get(node, ""))

    async def scores(self, one: dict[str, Any], *nodes: str) -> dict[str, int]:
        """Return the scores of nodes."""
        answer = await self._post("prioritize", {"Pod": one, "NodeNames": list(nodes)})
        return {each["Host"]: each["Score"] for each in answer}

    async def create(self, one: dict[str, Any]) -> None:
        """Create a pod, and have the ledger charge it."""
        kept = msgspec.convert(one, Pod)
        self.server.add(kept)
        meta, demand = kept.metadata, demand_of(kept, RULES)
        assert not isinstance(demand, Denial), demand.message
        key = f"pods/{meta.name}"
        await self.found.tell(commands.Reserve(SPACE, key, meta.uid, demand.amounts))

    async def bind(self, one: dict[str, Any], node: str = "n1") -> str:
        """Create a pod, and bind it; return the cards that its node is to hand out."""
        await self.create(one)
        meta = one["metadata"]
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

    async def cards(self, one: dict[str, Any], node: str = "n1") -> list[str]:
        """Bind a pod, and return the uuids of its cards, slot by slot."""
        text = await self.bind(one, node)
        return [card.split(",")[0] for card in text.replace(";", "").split(":") if card]

    async def ended(self, one: dict[str, Any]) -> None:
        """Let a pod be deleted."""
        meta = one["metadata"]
        await self.found.tell(commands.Observe(SPACE, f"pods/{meta['name']}", meta["uid"], 1, {}))
        await self.found.tell(
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
    async with replica(server=server, settings=settings) as found:
        app = Starlette(routes=routes(found.extender, BODY_MAX))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            yield HttpExtender(found, server, client)
