"""Fit requests: pods and nodes of a few cards, and the answer of the fit about one node."""

from dataclasses import replace
from typing import Any, Final

from msgspec import structs
from support.harness.fit_harness import answers
from support.oracles.card_offers import Answer, OneCard, OneNode, Terms

from ledger.core.model.cards import Parts, Phase
from ledger.kube.requests.device_requests import (
    ContainerDeviceRequests,
    DeviceRequest,
    PodDeviceRequest,
    Weights,
)

PLAIN: Final = DeviceRequest("nvidia", 1, 8_000, 0, 10, exclusive=False)


def but(wish: DeviceRequest, **fields: Any) -> DeviceRequest:
    """Return a request with other values in these fields."""
    return structs.replace(wish, **fields)


def pod(*wishes: DeviceRequest, numa_bind: bool = False) -> PodDeviceRequest:
    """Return a pod with one container of these requests."""
    return PodDeviceRequest(
        (ContainerDeviceRequests("main", Phase.APP, wishes),), numa_bind=numa_bind
    )


def card(uuid: str, index: int = 0, **fields: Any) -> OneCard:
    """Return a card of these properties."""
    return replace(OneCard(uuid, index), **fields)


def node(*cards: OneCard, pairs: dict[tuple[str, str], int] | None = None) -> OneNode:
    """Return a node of these cards; `pairs` scores links, in both directions."""
    both = {(right, left): score for (left, right), score in (pairs or {}).items()}
    return OneNode(list(cards), {**(pairs or {}), **both})


def answer(host: OneNode, wish: PodDeviceRequest, *policies: str, room: int = -1) -> Answer:
    """Return whether and where a pod fits on one node, by card policies."""
    return answers([host], wish, Terms("binpack", policies or ("spread",), Weights(), room))[0]


def parts(host: OneNode, wish: PodDeviceRequest, *policies: str, room: int = -1) -> Parts:
    """Return the cards that a pod gets on one node, where it fits."""
    given = answer(host, wish, *policies, room=room)
    assert given.parts is not None, given.reason
    return given.parts
