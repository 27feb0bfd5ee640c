"""Node metrics for Prometheus: the node's cards and containers, under HAMi's names if any.

Every series belongs to a card or a container of this node, which bounds their number. Amounts are
bytes and seconds; a HAMi metric named ratio is a percentage, as in HAMi.
"""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ledger.core.model.cards import WHOLE, Card
from vgpu_native.agent.cards.card_inventory import CardInventory
from vgpu_native.agent.usage_observer import ContainerUse, UsageObservation

_CARD: Final = ("node", "device_index", "device_uuid", "device_type")
_CONTAINER: Final = ("namespace", "pod", "container", "vdevice_index", "device_uuid")
_POD: Final = ("uid", "device_uuid")

_OF_CONTAINERS: Final[tuple[tuple[str, str, Callable[[ContainerUse], float]], ...]] = (
    (
        "hami_vgpu_memory_used_bytes",
        "Memory of a card that a container reports as used, bytes.",
        lambda use: use.memory_used,
    ),
    (
        "hami_vgpu_memory_limit_bytes",
        "Memory of a card that a container may use, bytes; 0 without a limit.",
        lambda use: use.memory_limit,
    ),
    (
        "hami_container_device_utilization_ratio",
        "Time for which a container kept a card busy since the look before, percent.",
        lambda use: use.busy,
    ),
    (
        "gpuledger_container_cores_limit_ratio",
        "Part of a card's time that a container may use; 1 without a limit.",
        lambda use: use.cores_limit / WHOLE,
    ),
    (
        "gpuledger_container_gpu_processes",
        "Processes of a container that use its cards.",
        lambda use: use.processes,
    ),
)

_EARLIER_OF_CONTAINERS: Final = (
    "gpuledger_container_cores_limit",
    "Earlier name, by legacy_metrics, percent.",
    lambda use: use.cores_limit,
)

LIMIT: Final = 10_000
"""Most series of one metric; the rest is counted."""


class AgentCollector(Collector):
    """The agent's last reading, as metrics."""

    def __init__(self, node: str, inventory: CardInventory, *, legacy: bool = False) -> None:
        """Export the cards of an inventory; `show` sets the usage of containers.

        With `legacy`, renamed metrics are exported by their earlier names, too.
        """
        self._node, self._inventory, self._legacy = node, inventory, legacy
        self._observation = UsageObservation()

    @property
    def observation(self) -> UsageObservation:
        """The last reading."""
        return self._observation

    def show(self, observation: UsageObservation) -> None:
        """Export this reading from now on."""
        self._observation = observation

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        observation, cards = self._observation, self._inventory.cards
        yield from self._of_cards(observation, cards)
        yield self._xids()
        earlier = (_EARLIER_OF_CONTAINERS,) if self._legacy else ()
        for name, text, value in (*_OF_CONTAINERS, *earlier):
            family = GaugeMetricFamily(name, text, labels=_CONTAINER)
            for use in observation.uses[:LIMIT]:
                family.add_metric(_labels(use), value(use))
            yield family
        busy = CounterMetricFamily(
            "gpuledger_container_gpu_busy_seconds",
            "Time for which a container kept a card busy, seconds, as far as it was measured.",
            labels=_CONTAINER,
        )
        for use in observation.uses[:LIMIT]:
            busy.add_metric(_labels(use), use.busy_seconds)
        yield busy
        yield GaugeMetricFamily(
            "gpuledger_container_devices_left_out",
            "Cards of containers that are not listed, because there are too many.",
            value=max(0, len(observation.uses) - LIMIT),
        )
        yield from _of_drift(observation)

    def _of_cards(self, observation: UsageObservation, cards: tuple[Card, ...]) -> Iterator[Metric]:
        health = GaugeMetricFamily(
            "gpuledger_device_healthy", "1 while a card is healthy.", labels=_CARD
        )
        earlier = GaugeMetricFamily(
            "gpuledger_card_healthy", "Earlier name, by legacy_metrics.", labels=_CARD
        )
        memory = GaugeMetricFamily(
            "hami_host_gpu_memory_used_bytes", "Memory of a card in use, bytes.", labels=_CARD
        )
        busy = GaugeMetricFamily(
            "hami_host_gpu_utilization_ratio",
            "Time in which a card worked, of the last moment, percent.",
            labels=_CARD,
        )
        memory_busy = GaugeMetricFamily(
            "hami_host_gpu_memory_controller_utilization_ratio",
            "Time in which a card's memory was read or written, of the last moment, percent.",
            labels=_CARD,
        )
        for card in cards:
            labels = (self._node, str(card.index), card.uuid, card.type)
            health.add_metric(labels, card.healthy)
            earlier.add_metric(labels, card.healthy)
            load = observation.loads.get(card.uuid)
            if load is not None:
                memory.add_metric(labels, load.memory)
                busy.add_metric(labels, load.busy)
                memory_busy.add_metric(labels, load.memory_busy)
        yield from (health, memory, busy, memory_busy)
        if self._legacy:
            yield earlier

    def _xids(self) -> Metric:
        family = CounterMetricFamily(
            "gpuledger_card_xids",
            "Errors of cards that the driver reported since the start, by number.",
            labels=("node", "device_uuid", "xid"),
        )
        for (uuid, number), count in list(self._inventory.health.xids.items())[:LIMIT]:
            family.add_metric((self._node, uuid, str(number)), count)
        return family


def _of_drift(observation: UsageObservation) -> Iterator[Metric]:
    drift = GaugeMetricFamily(
        "gpuledger_pod_gpu_drift_bytes",
        "Memory of a card that a pod uses beyond the sum that its containers report, bytes.",
        labels=_POD,
    )
    for bypass in observation.drifts[:LIMIT]:
        drift.add_metric((bypass.uid, bypass.card), bypass.excess)
    yield drift
    broken = GaugeMetricFamily(
        "gpuledger_regions_broken", "Regions and limits pages of containers that cannot be read."
    )
    broken.add_metric((), len(observation.broken))
    yield broken


def _labels(use: ContainerUse) -> tuple[str, ...]:
    return (use.namespace, use.pod, use.container, str(use.index), use.card)
