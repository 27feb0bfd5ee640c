"""Device request parser: from a pod to the cards that it requests.

The parser follows the rules of the pod's demand, so that placement and charge agree.
"""

from collections.abc import Mapping

from msgspec import structs

from ledger.core.model.cards import Phase
from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Container, Pod, PodSpec
from ledger.kube.requests.card_selector_annotations import selector_of
from ledger.kube.requests.container_demand import CardRequest, InvalidRequest, cards_of, names_cards
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_requests import (
    ContainerDeviceRequests,
    DeviceRequest,
    DeviceSelector,
    PodDeviceRequest,
)
from ledger.kube.requests.gpu_type_annotation import types_named
from ledger.kube.requests.placements.placement_preferences import KEYS, preferences_of


def device_request_of(pod: Pod, rules: DemandRules) -> PodDeviceRequest | Denial:
    """Return the device request of a pod, or the denial of an invalid request.

    The request of a pod without cards is empty, and its annotations are ignored.
    """
    asked = _asked(pod.spec, rules)
    if isinstance(asked, Denial):
        return asked
    annotations = pod.metadata.annotations or {}
    types = _types(annotations, rules)
    choices = _choices(annotations, asked, types)
    if isinstance(choices, Denial):
        return choices
    containers = tuple(
        ContainerDeviceRequests(
            container.name, phase, tuple(_device_request(request, choices) for request in requests)
        )
        for container, phase, requests in asked
    )
    if not choices or not _has_any(annotations, rules):
        return PodDeviceRequest(containers, types=types)
    preferred = preferences_of(annotations)
    if isinstance(preferred, Denial):
        return preferred
    return PodDeviceRequest(
        containers,
        numa_bind=preferred.numa_bind,
        node_policy=preferred.node_policy,
        card_policies=preferred.card_policies,
        weights=preferred.weights,
        types=types,
    )


def invalid_device_request(pod: Pod, rules: DemandRules) -> Denial | None:
    """Return the denial of invalid placement annotations on a pod that requests cards, or None."""
    annotations = pod.metadata.annotations
    if not annotations or not _has_any(annotations, rules):
        return None
    if not any(names_cards(container, rules) for container in _containers(pod.spec)):
        return None
    preferred = preferences_of(annotations)
    if isinstance(preferred, Denial):
        return preferred
    choices = (selector_of(annotations, vendor) for vendor in rules.vendors)
    return next((choice for choice in choices if isinstance(choice, Denial)), None)


def _has_any(annotations: Mapping[str, str], rules: DemandRules) -> bool:
    """Return whether any annotation is about placement; most pods have none."""
    return not (KEYS.isdisjoint(annotations) and rules.choosing.isdisjoint(annotations))


_Asked = list[tuple[Container, Phase, list[CardRequest]]]


def _asked(spec: PodSpec, rules: DemandRules) -> _Asked | Denial:
    """Return the containers in the order of slots, each with the cards that it requests."""
    asked: _Asked = []
    for field, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
    ):
        for number, container in enumerate(containers or ()):
            try:
                asked.append((container, _phase(field, container), cards_of(container, rules)))
            except InvalidRequest as refusal:
                place = f"spec.{field}[{number}].resources"
                return refusal.denial(place, f"container {container.name}")
    return asked


def _containers(spec: PodSpec) -> tuple[Container, ...]:
    return (*(spec.init_containers or ()), *(spec.containers or ()))


def _phase(field: str, container: Container) -> Phase:
    if field == "containers":
        return Phase.APP
    return Phase.SIDECAR if container.is_sidecar() else Phase.INIT


def _choices(
    annotations: Mapping[str, str], asked: _Asked, types: tuple[str, ...]
) -> dict[str, DeviceSelector] | Denial:
    """Return the accepted cards of each requested vendor, by the vendor's name.

    A pod that is charged for certain card types accepts only those types.
    """
    choices: dict[str, DeviceSelector] = {}
    for vendor in {
        request.vendor.name: request.vendor for _, _, many in asked for request in many
    }.values():
        choice = selector_of(annotations, vendor)
        if isinstance(choice, Denial):
            return choice
        use_types = tuple(dict.fromkeys((*choice.use_types, *types)))
        choices[vendor.name] = structs.replace(choice, use_types=use_types)
    return choices


def _device_request(asked: CardRequest, choices: Mapping[str, DeviceSelector]) -> DeviceRequest:
    vendor = asked.vendor
    return DeviceRequest(
        vendor.name,
        asked.count,
        0 if asked.percentage else asked.memory or 0,
        asked.percentage,
        asked.cores if vendor.cores else 0,
        asked.exclusive,
        choices[vendor.name],
    )


def _types(annotations: Mapping[str, str], rules: DemandRules) -> tuple[str, ...]:
    if not rules.types:
        return ()
    named = types_named(annotations, rules.type_annotations, rules.known_types)
    return tuple(card_type.name for card_type in named.types)
