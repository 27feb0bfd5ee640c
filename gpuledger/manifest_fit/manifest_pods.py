"""Manifest pods: the device requests of the pods that a manifest creates."""

from collections.abc import Iterator

import msgspec
from msgspec import structs

from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Pod, Workload
from ledger.kube.hami import annotation_keys
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_request_parser import device_request_of
from ledger.kube.requests.device_requests import PodDeviceRequest
from webhook.api.admission_review import UNDECODABLE, BadReview, bad_review
from webhook.kinds.kind_catalog import KindCatalog
from webhook.kinds.object_values import InvalidObject
from webhook.kinds.pod_templates import templates_of


class InvalidCardRequest(Exception):
    """A pod of a manifest has an invalid request for cards; `denial` names the field."""

    def __init__(self, denial: Denial) -> None:
        super().__init__(denial.message)
        self.denial = denial


class PodCardRequest(msgspec.Struct, frozen=True):
    """The cards that a pod of a manifest requests; `pod` is its name or its template's field.

    `claims` are the names of its resource claims, whose devices kube-scheduler chooses.
    """

    pod: str
    devices: PodDeviceRequest
    claims: tuple[str, ...] = ()


class _Manifest(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str


def card_requests(
    body: bytes, namespace: str, catalog: KindCatalog, rules: DemandRules
) -> list[PodCardRequest]:
    """Return the requests of a manifest's pods, one of each template.

    `body` is JSON, and `namespace` the local name of the pods' namespace. Raises BadReview and
    InvalidCardRequest.
    """
    requests = []
    for name, pod in _pods(body, namespace, catalog):
        devices = device_request_of(pod, rules)
        if isinstance(devices, Denial):
            raise InvalidCardRequest(devices)
        devices = devices.among(annotation_keys.VENDOR_ANNOTATIONS)
        claims = tuple(named.name for named in pod.spec.resource_claims or ())
        requests.append(PodCardRequest(name, devices, claims))
    return requests


def _pods(body: bytes, namespace: str, catalog: KindCatalog) -> Iterator[tuple[str, Pod]]:
    """Yield the pods of a manifest, with a name for each. Raises as `card_requests`."""
    try:
        manifest = msgspec.json.decode(body, type=_Manifest)
        if manifest.kind == "Pod":
            pod = msgspec.json.decode(body, type=Pod)
            yield pod.metadata.name or pod.metadata.generate_name, _within(pod, namespace)
            return
        workload = msgspec.json.decode(body, type=Workload)
    except UNDECODABLE as error:
        raise bad_review(error, "$") from error
    kind = catalog.of_owner(manifest.api_version, manifest.kind)
    if kind is None:
        raise BadReview(
            "$.kind", f"{manifest.kind[:64]!r} creates no pods: give an object that creates pods"
        )
    try:
        for template in templates_of(kind, workload):
            yield template.field, _within(template.pod, namespace)
    except InvalidObject as error:
        raise InvalidCardRequest(error.denial) from error


def _within(pod: Pod, namespace: str) -> Pod:
    return structs.replace(pod, metadata=structs.replace(pod.metadata, namespace=namespace))
