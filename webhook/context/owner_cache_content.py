"""Owner cache content: whole objects that request charged resources, and only metadata of others.

Most objects of a cluster request nothing that is charged. Their metadata is enough to find the root
of a pod. A whole object is kept as compressed JSON, which is its digest in the owner cache.
"""

import zlib
from collections.abc import Callable
from typing import Final

import msgspec

from ledger.core.model.denials import Denial
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.objects import Pod, Workload
from ledger.kube.requests.claim_demands import ClaimDemands
from ledger.kube.requests.demand import NO_DEMAND, Demand
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.watch.owner_cache import CachedOwner
from webhook.kinds.kind_catalog import KindCatalog
from webhook.kinds.workload_envelope import envelope_of

ASKS_NOTHING: Final = b""
"""Digest of an object whose templates request nothing that is charged."""

_FASTEST: Final = 1
_SOMETHING: Final = Demand({}, unresolved=True)
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Workload)


def owner_digest(catalog: KindCatalog, rules: DemandRules) -> Callable[[Resource, Workload], bytes]:
    """Return the digest function for `ledger.kube.watch.owner_cache.OwnerCache`.

    Templates of resource claims may change at any time, so each pod with claims requests something.
    """
    rules = msgspec.structs.replace(rules, claims=_AnyClaims())

    def digest(resource: Resource, seen: Workload) -> bytes:
        kind = catalog.of_resource(resource.group, resource.plural)
        if kind is None:
            return ASKS_NOTHING
        envelope = envelope_of(kind, seen, rules)
        if not isinstance(envelope, Denial) and not envelope.traits:
            return ASKS_NOTHING
        return zlib.compress(_encoder.encode(seen), _FASTEST)

    return digest


class _AnyClaims(ClaimDemands):
    """Demands by which each pod with generated claims requests something."""

    def of_pod(self, pod: Pod) -> Demand | Denial:
        claims = pod.spec.resource_claims or ()
        if any(named.resource_claim_template_name for named in claims):
            return _SOMETHING
        return NO_DEMAND


def cached_workload(parent: CachedOwner[bytes]) -> Workload | None:
    """Return the cached object, None if it requests nothing that is charged."""
    if parent.digest == ASKS_NOTHING:
        return None
    return _decoder.decode(zlib.decompress(parent.digest))
