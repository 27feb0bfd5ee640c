"""Placement oracle: the expected usage of every card, and violations, from plain lists alone.

It is written from the pages, without any code of the product. Nodes announce their cards in an
annotation, and pods have their shares in another. A pod uses the most of each card that its
containers may use at once, by the rule of Kubernetes.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

Manifest = dict[str, Any]

NODE_CARDS: Final = "hami.io/node-nvidia-register"
POD_CARDS: Final = "hami.io/vgpu-devices-allocated"
POD_NODE: Final = "hami.io/vgpu-node"

COUNT: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"
PERCENTAGE: Final = "nvidia.com/gpumem-percentage"
CORES: Final = "nvidia.com/gpucores"

WHOLE: Final = 100
_FINISHED: Final = ("Succeeded", "Failed")
_THOUSANDS: Final = {"k": 10**3, "M": 10**6}


class CardCapacity(NamedTuple):
    """The capacity of a card, and its properties."""

    memory: int
    cores: int
    slots: int
    type: str
    numa: int
    healthy: bool


class CardShare(NamedTuple):
    """One entry of a pod's annotation: MiB and percent of a card."""

    uuid: str
    memory: int
    cores: int


class CardUsage(NamedTuple):
    """The usage of a card."""

    memory: int = 0
    cores: int = 0
    slots: int = 0

    def plus(self, other: "CardUsage") -> "CardUsage":
        """Return both together."""
        return CardUsage(*(amount + more for amount, more in zip(self, other, strict=True)))

    def most(self, other: "CardUsage") -> "CardUsage":
        """Return the larger of both, line by line."""
        return CardUsage(*map(max, self, other))


CardsOf = dict[str, dict[str, CardCapacity]]
"""Cards by node and uuid."""

Usage = dict[tuple[str, str], CardUsage]
"""Usage by node and uuid."""


def cards_of(nodes: list[Manifest]) -> CardsOf:
    """Return the cards that nodes announce, in either of the formats."""
    return {
        node["metadata"]["name"]: _announced(text)
        for node in nodes
        if (text := node["metadata"].get("annotations", {}).get(NODE_CARDS))
    }


def usage_of(pods: list[Manifest]) -> Usage:
    """Return the usage of a node's cards by its running pods; unused cards are left out.

    A finished pod takes nothing.
    """
    usage: Usage = {}
    for pod in filter(_takes, pods):
        node = pod["spec"]["nodeName"]
        for uuid, used in _taken(pod).items():
            usage[node, uuid] = usage.get((node, uuid), CardUsage()).plus(used)
    return usage


def complaints(nodes: list[Manifest], pods: list[Manifest]) -> list[str]:
    """Return all that is wrong, one sentence each; none when every card keeps what it promised."""
    cards = cards_of(nodes)
    sentences = [*_over(cards, usage_of(pods)), *_not_alone(pods)]
    for pod in filter(_takes, pods):
        sentences += (f"{_name(pod)}: {wrong}" for wrong in _wrong(cards, pod))
    return sentences


def wants_cards(pod: Manifest) -> bool:
    """Return whether any container of a pod asks for cards."""
    return any(_asked(container) for container in _containers(pod))


def _over(cards: CardsOf, usage: Usage) -> Iterator[str]:
    for (node, uuid), used in usage.items():
        has = cards.get(node, {}).get(uuid)
        if has is None:
            continue  # reported with each of its pods
        for word in CardUsage._fields:
            taken, limit = getattr(used, word), getattr(has, word)
            if taken > limit:
                yield f"card {uuid} of {node}: {taken} of {limit} {word} are taken"


def _not_alone(pods: list[Manifest]) -> Iterator[str]:
    """Yield cards that one pod has exclusively and another pod has, too."""
    holders: dict[tuple[str, str], set[str]] = {}
    alone: set[tuple[str, str]] = set()
    for pod in filter(_takes, pods):
        for container, given in _shares(pod):
            for share in given:
                place = pod["spec"]["nodeName"], share.uuid
                holders.setdefault(place, set()).add(_name(pod))
                if _asked(container).get(CORES) == WHOLE:
                    alone.add(place)
    for node, uuid in sorted(alone):
        if len(holders[node, uuid]) > 1:
            yield f"card {uuid} of {node} was to be one pod's alone: {holders[node, uuid]}"


def _wrong(cards: CardsOf, pod: Manifest) -> Iterator[str]:
    """Yield how a pod's shares differ from its request, or are impossible."""
    node = pod["spec"]["nodeName"]
    annotations = pod["metadata"].get("annotations", {})
    if POD_CARDS not in annotations:
        yield f"was bound to {node} without cards"
        return
    if annotations.get(POD_NODE) != node:
        yield f"runs on {node}, and its annotation says {annotations.get(POD_NODE)}"
    has = cards.get(node, {})
    for container, given in _shares(pod):
        name = container["name"]
        for share in given:
            if share.uuid not in has:
                yield f"{name} was given {share.uuid}, which {node} does not have"
                return
        yield from (f"{name} {wrong}" for wrong in _against(pod, _asked(container), given, has))


def _against(
    pod: Manifest, asked: Counter[str], given: list[CardShare], has: dict[str, CardCapacity]
) -> Iterator[str]:
    """Yield how a container's shares differ from its request."""
    if len(given) != asked[COUNT]:
        yield f"asked for {asked[COUNT]} cards and was given {len(given)}"
    if len({share.uuid for share in given}) != len(given):
        yield "was given one card twice"
    for share in given:
        memory = _memory(asked, has[share.uuid])
        if share.memory != memory:
            yield f"was given {share.memory} MiB of {share.uuid}, not {memory}"
        if share.cores != asked[CORES]:
            yield f"was given {share.cores} % of {share.uuid}, not {asked[CORES]}"
    yield from _unwanted(pod["metadata"].get("annotations", {}), given, has)


def _unwanted(
    annotations: dict[str, str], given: list[CardShare], has: dict[str, CardCapacity]
) -> Iterator[str]:
    types = _words(annotations.get("nvidia.com/use-gputype", ""))
    uuids = _words(annotations.get("nvidia.com/use-gpuuuid", ""))
    for share in given:
        model = has[share.uuid].type
        if types and not any(word.lower() in model.lower() for word in types):
            yield f"was given a {model}"
        if uuids and share.uuid not in uuids:
            yield f"was given {share.uuid}, which it did not name"
    if annotations.get("nvidia.com/numa-bind") == "true":
        nodes = {has[share.uuid].numa for share in given}
        if len(nodes) > 1:
            yield f"was given cards of the NUMA nodes {sorted(nodes)}"


def _memory(asked: Counter[str], card: CardCapacity) -> int:
    """Return the MiB of a card that are asked for: so many, a part, or all that is on offer."""
    if asked[MEMORY]:
        return asked[MEMORY]
    return card.memory * (asked[PERCENTAGE] or WHOLE) // WHOLE


def _taken(pod: Manifest) -> dict[str, CardUsage]:
    """Return the most that a pod takes of each card."""
    running: dict[str, CardUsage] = {}
    most: dict[str, CardUsage] = {}
    ended = _ended(pod)
    for container, given in _shares(pod):
        beside = dict(running)
        for card in given:
            share = CardUsage(card.memory, card.cores, 1)
            beside[card.uuid] = beside.get(card.uuid, CardUsage()).plus(share)
        if container["name"] in ended:
            continue
        for uuid, used in beside.items():
            most[uuid] = most.get(uuid, CardUsage()).most(used)
        if not _is_passing(pod, container):
            running = beside
    return most


def _ended(pod: Manifest) -> set[str]:
    """Return the init containers that run no more, once all of them are over."""
    passing = {container["name"] for container in _containers(pod) if _is_passing(pod, container)}
    over = {
        status["name"]
        for status in pod.get("status", {}).get("initContainerStatuses") or ()
        if "terminated" in status.get("state", {})
    }
    return passing if passing <= over else set()


def _is_passing(pod: Manifest, container: Manifest) -> bool:
    """Return whether it is an init container and no sidecar."""
    first = pod["spec"].get("initContainers") or []
    return container in first and container.get("restartPolicy") != "Always"


def _shares(pod: Manifest) -> Iterator[tuple[Manifest, list[CardShare]]]:
    """Return the containers of a pod in order, each with what its annotation gives it."""
    text = pod["metadata"].get("annotations", {}).get(POD_CARDS, "")
    slots = text.split(";")
    for number, container in enumerate(_containers(pod)):
        yield container, _given(slots[number]) if number < len(slots) else []


def _given(slot: str) -> list[CardShare]:
    shares = []
    for entry in filter(None, slot.split(":")):
        uuid, _, memory, cores, *_ = entry.split(",")
        if uuid:
            shares.append(CardShare(uuid, int(memory), int(cores)))
    return shares


def _announced(text: str) -> dict[str, CardCapacity]:
    if text.lstrip().startswith("["):
        return {
            card["id"]: CardCapacity(
                card.get("devmem", 0),
                card.get("devcore", 0),
                card.get("count", 0),
                card.get("type", ""),
                card.get("numa", 0),
                card.get("health", False),
            )
            for card in json.loads(text)
        }
    capacities = {}
    for entry in filter(None, text.split(":")):
        uuid, slots, memory, cores, model, numa, health, *_ = entry.split(",")
        capacities[uuid] = CardCapacity(
            int(memory), int(cores), int(slots), model, int(numa), health == "true"
        )
    return capacities


def _asked(container: Manifest) -> Counter[str]:
    """Return the request of a container by its limits, which come before its requests.

    Cards alone are whole cards.
    """
    resources = container.get("resources", {})
    both = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    names = (COUNT, MEMORY, PERCENTAGE, CORES)
    asked = Counter({name: _integer(both[name]) for name in names if name in both})
    return Counter(asked, **{CORES: WHOLE}) if set(asked) == {COUNT} else asked


def _containers(pod: Manifest) -> list[Manifest]:
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def _takes(pod: Manifest) -> bool:
    if "nodeName" not in pod["spec"] or not wants_cards(pod):
        return False
    return pod.get("status", {}).get("phase") not in _FINISHED


def _integer(quantity: str) -> int:
    """Read a quantity as the API server writes whole numbers: `8000` comes back as `8k`."""
    factor = _THOUSANDS.get(quantity[-1])
    return int(quantity) if factor is None else int(quantity[:-1]) * factor


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _name(pod: Manifest) -> str:
    return f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
