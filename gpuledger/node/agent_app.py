"""Agent app: HTTP routes for probes, for metrics, and for the usage that `node top` shows."""

import asyncio
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuledger.node.agent_settings import AgentSettings
from gpuledger.version import VERSION
from ledger.core.model.cards import Card
from ledger.runtime.http.health import Health
from vgpu_native.agent.bypass_detection import Bypass
from vgpu_native.agent.cards.card_inventory import CardInventory
from vgpu_native.agent.limits_page_writer import LimitsWriter
from vgpu_native.agent.log_follower import LogFollower
from vgpu_native.agent.node_annotator import NodeAnnotator
from vgpu_native.agent.node_metrics import AgentCollector
from vgpu_native.agent.usage_observer import ContainerUse
from vgpu_native.nvml.nvml_port import Load
from vgpu_native.plugin.server.plugin_server import DevicePluginServer

CONTAINERS: Final = "/v1/containers"


class NodeView(msgspec.Struct, frozen=True):
    """The answer of `/v1/containers`: the node at its last check, `time` in seconds of Unix
    time."""

    node: str
    time: float
    position: int
    cards: tuple[Card, ...]
    loads: dict[str, Load]
    containers: tuple[ContainerUse, ...]
    drifts: tuple[Bypass, ...]


class AgentApp:
    """The agent's HTTP application."""

    def __init__(
        self,
        settings: AgentSettings,
        health: Health,
        *,
        follower: LogFollower,
        inventory: CardInventory,
        exported: AgentCollector,
        limiter: LimitsWriter,
    ) -> None:
        """Serve the data of these parts."""
        self._settings, self._health = settings, health
        self._follower, self._inventory = follower, inventory
        self._exported, self._limiter = exported, limiter
        self._registry = CollectorRegistry()
        self._registry.register(exported)
        self._registry.register(_ProcessCollector(follower))
        self.app = Starlette(
            routes=[
                *health.routes(),
                Route("/metrics", self._metrics),
                Route(CONTAINERS, self._containers),
            ]
        )

    def add_checks(
        self, plugin: DevicePluginServer | None, announcer: NodeAnnotator | None
    ) -> None:
        """Add the checks of readiness."""
        follower, inventory, limiter = self._follower, self._inventory, self._limiter
        self._health.add("ledger", lambda: (not follower.trouble, follower.trouble))
        self._health.add("cards", lambda: (not inventory.trouble, inventory.trouble))
        self._health.add("limits", lambda: (True, "; ".join(limiter.troubles.values())))
        self._health.add("health", lambda: (True, _health_text(inventory.health.unhealthy)))
        if plugin is not None:
            self._registry.register(_RequestCollector(plugin))
            self._health.add("kubelet", lambda: (plugin.registered, _unregistered(plugin)))
            self._health.add("regions", lambda: (True, plugin.allocations.slots.warning))
        if announcer is not None:
            self._health.add("node", lambda: (not announcer.trouble, announcer.trouble))

    async def _metrics(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        body = await asyncio.to_thread(encode, self._registry)
        return Response(body, headers={"content-type": content_type})

    async def _containers(self, _: Request) -> Response:
        observation = self._exported.observation
        view = NodeView(
            self._settings.name,
            observation.time,
            self._follower.position,
            self._inventory.cards,
            observation.loads,
            observation.uses,
            observation.drifts,
        )
        body = msgspec.json.encode(msgspec.to_builtins(_plain(view)))
        return Response(body, media_type="application/json")


class _ProcessCollector(Collector):
    """Metrics of the agent itself."""

    def __init__(self, follower: LogFollower) -> None:
        self._follower = follower

    def collect(self) -> list[Metric]:
        """Return the metrics."""
        build = GaugeMetricFamily(
            "gpuledger_build_info", "1, labelled with the version that runs.", labels=("version",)
        )
        build.add_metric((VERSION,), 1)
        follower = self._follower
        return [
            build,
            GaugeMetricFamily(
                "gpuledger_log_position",
                "Last position this process has applied.",
                value=follower.position,
            ),
            GaugeMetricFamily(
                "gpuledger_log_reachable",
                "1 while the placements of the node follow the log.",
                value=float(not follower.trouble),
            ),
        ]


class _RequestCollector(Collector):
    """Metrics of the calls for which the device plugin lets the kubelet wait."""

    def __init__(self, plugin: DevicePluginServer) -> None:
        self._plugin = plugin

    def collect(self) -> list[Metric]:
        """Return the metrics."""
        return [
            GaugeMetricFamily(
                "gpuledger_allocate_waiting_seconds",
                "Time for which the kubelet has been waiting for an answer; 0 without a call.",
                value=self._plugin.waited_seconds,
            )
        ]


def _plain(view: NodeView) -> dict[str, object]:
    """Return a view as objects, also of cards, which are arrays in the log."""
    cards = [
        {"uuid": card.uuid, "index": card.index, "type": card.type, "memory": card.memory}
        | {"slots": card.slots, "healthy": card.healthy}
        for card in view.cards
    ]
    return msgspec.structs.asdict(view) | {"cards": cards}


def _health_text(unhealthy: dict[str, str]) -> str:
    return "; ".join(f"card {uuid}: {why}" for uuid, why in unhealthy.items())


def _unregistered(plugin: DevicePluginServer) -> str:
    return "" if plugin.registered else "the device plugin is not registered with the kubelet (yet)"
