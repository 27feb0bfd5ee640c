"""Claim store: the resource claims of a cluster, and the demand of pods through them.

It decides which claims count with their pod. A claim that the ledger has at its own key counts by
itself, and adds nothing to a pod. A generated claim without such an entry counts with the pod that
controls it, a claim of extended resources adds nothing. So no claim is charged twice.

A claim that does not exist yet counts with the template that the pod names. That part of a demand
is `deferred`: it is reserved when a pod or workload is reviewed, and never raises the charge of an
existing one, because the template may be another one now. The claim is reviewed when it is created.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Final

import msgspec

from ledger.core.model.denials import Denial
from ledger.core.model.devices import Devices
from ledger.core.model.qualified_names import qualified
from ledger.kube.api.api_resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
)
from ledger.kube.api.cluster_errors import ClusterError, NotServed
from ledger.kube.api.cluster_ports import Workloads
from ledger.kube.api.objects import Pod, PodResourceClaim, Workload
from ledger.kube.api.quoting import shown
from ledger.kube.requests.claim_demands import ClaimDemands
from ledger.kube.requests.confirmed_card_sizes import CARD_MEMORY_MAX
from ledger.kube.requests.demand import Demand
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.resource_claims.allocation import Allocated, allocated
from ledger.kube.resource_claims.claim_demand import ClaimBound, ClaimWorld, bound_of
from ledger.kube.resource_claims.device_classes import ClassMapping
from ledger.kube.resource_claims.device_supply import DeviceSupply
from ledger.kube.resource_claims.dra_objects import (
    ClaimSpec,
    DeviceClass,
    ResourceClaim,
    claim_of,
    class_of,
    template_of,
)
from webhook.context.owner_chain import StateSource
from webhook.context.read_deadline import read_deadline
from webhook.context.resource_claims import pod_claim_demands
from webhook.context.resource_claims.claim_denials import undecided_denial
from webhook.context.resource_claims.claim_index import CLAIMS_MAX, EXTENDED, ClaimIndex
from webhook.context.resource_claims.named_objects import NOT_LISTED, NamedObjects
from webhook.context.resource_claims.reviewed_pods import ReviewedPods
from webhook.context.resource_claims.slice_feed import SliceFeed

TEMPLATES_MAX: Final = 50_000
TEMPLATE_BYTES_MAX: Final = 64 * 1024**2
"""Maximum number and size of the cached templates."""

CLASSES_MAX: Final = 10_000
CLASS_BYTES_MAX: Final = 32 * 1024**2
"""Maximum number and size of the cached classes."""

READ_CLASSES_MAX: Final = 8
"""Classes of one review that are read from the API server; further unknown ones are missing."""

_encoder: Final = msgspec.json.Encoder()


class ClaimStore:
    """The templates, classes, slices and claims of one cluster. Implements `ClaimDemands`."""

    def __init__(
        self,
        name: str,
        *,
        view: StateSource,
        cluster: Workloads | None,
        rules: Callable[[], DemandRules],
        mapping: ClassMapping,
    ) -> None:
        """`name` is the name of the cluster in the ledger; `rules` returns the current rules."""
        self.templates: Final = NamedObjects[ClaimSpec](
            CLAIM_TEMPLATES,
            _spec_of_template,
            objects_max=TEMPLATES_MAX,
            bytes_max=TEMPLATE_BYTES_MAX,
        )
        self.classes: Final = NamedObjects[DeviceClass](
            DEVICE_CLASSES, _device_class, objects_max=CLASSES_MAX, bytes_max=CLASS_BYTES_MAX
        )
        self.slices = SliceFeed(DeviceSupply(mapping))
        self.claims: Final = ClaimIndex()
        self.reviewed_pods: Final = ReviewedPods()
        self._name = name
        self._view = view
        self._cluster = cluster
        self._rules = rules
        self._mapping = mapping
        self._world: tuple[tuple[int, DemandRules], ClaimWorld] | None = None
        if cluster is None:
            for cache in (self.templates, self.classes, self.slices):
                cache.listed.set()  # there is nothing to wait for

    def use_mapping(self, mapping: ClassMapping, *, card_memory_max: int = CARD_MEMORY_MAX) -> None:
        """Use another mapping of device classes. Call it before the watches begin.

        No device counts above `card_memory_max` MiB.
        """
        is_listed, set_offered = self.slices.listed.is_set(), self.slices.set_offered
        self._mapping, self._world = mapping, None
        self.slices = SliceFeed(DeviceSupply(mapping, card_memory_max=card_memory_max))
        self.slices.set_offered = set_offered
        if is_listed:
            self.slices.listed.set()

    # Settlement calls these: its watch of claims notes and drops them.

    def note_claim(self, claim: ResourceClaim) -> None:
        """Take a claim of the watch, which replaces an earlier version."""
        self.claims.note(claim)

    def drop_claim(self, uid: str) -> None:
        """Remove a deleted claim."""
        self.claims.drop(uid)

    def relist_claims(self, claims: Iterable[ResourceClaim]) -> None:
        """Replace all claims by those of a list."""
        self.claims.relist(claims)

    def has_own_entry(self, claim: ResourceClaim) -> bool:
        """Return whether the ledger has an entry at the claim's own key for its uid."""
        meta = claim.metadata
        entry = self._view.state.entry(qualified(self._name, meta.namespace), key_of(meta.name))
        return entry is not None and entry.holds_uid(meta.uid)

    def of_claim(self, claim: ResourceClaim) -> Demand | Denial:
        """Return the demand of a claim that counts by itself: its allocation, else its bound."""
        given = self.allocation(claim)
        if given is not None:
            return Demand(given.amounts)
        bound = self.bound(claim.spec)
        return bound if isinstance(bound, Denial) else bound.demand

    def allocation(self, claim: ResourceClaim) -> Allocated | None:
        """Return the amounts and devices of an allocated claim, None if it is not allocated."""
        return allocated(claim, self.world)

    def devices_of_pod(self, pod: Pod) -> Devices:
        """Return the devices of the claims that count with a pod, extended resources included."""
        claims: list[ResourceClaim] = []
        for named in pod.spec.resource_claims or ():
            if named.resource_claim_template_name:
                claims += self.existing(pod, named)[0]
        extended = (claim for claim in self._at(pod, EXTENDED) if not self.has_own_entry(claim))
        claims += islice(extended, 1)
        given = map(self.allocation, claims)
        return tuple(device for each in given if each is not None for device in each.devices)

    async def wait_listed(self, deadline: float) -> str:
        """Wait until templates, classes and slices were listed, or are not served.

        Returns the problem at loop time `deadline`, empty if there is none.
        """
        caches = (self.templates, self.classes, self.slices)
        if all(cache.listed.is_set() for cache in caches):
            return ""
        try:
            async with asyncio.timeout_at(deadline):
                for cache in caches:
                    await cache.listed.wait()
        except TimeoutError:
            return "; ".join(self.problems()) or NOT_LISTED
        return ""

    def problems(self) -> list[str]:
        """Return the watches that do not work, each with its reason."""
        if self._cluster is None:
            return []
        surplus = f"only {CLAIMS_MAX} of them are kept" if self.claims.has_rejected else ""
        sources = (
            (CLAIMS, surplus),
            (CLAIM_TEMPLATES, self.templates.problem),
            (DEVICE_CLASSES, self.classes.problem),
            (RESOURCE_SLICES, self.slices.problem),
        )
        return [
            f"{resource.name}: {problem}"
            for resource, problem in sources
            if problem not in ("", NOT_LISTED)
        ]

    # Amounts.

    @property
    def world(self) -> ClaimWorld:
        """The classes, slices and rules by which claims become amounts."""
        now = self.classes.version, self._rules()
        if self._world is None or self._world[0][0] != now[0] or self._world[0][1] is not now[1]:
            self._world = (
                now,
                ClaimWorld(
                    supply=self.slices.supply,
                    classes=self.classes.items(),
                    mapping=self._mapping,
                    rules=now[1],
                    cluster=self._name,
                ),
            )
        return self._world[1]

    def bound(self, spec: ClaimSpec) -> ClaimBound | Denial:
        """Return the most that a claim could consume, or the denial of a claim that never fits."""
        return bound_of(spec, self.world)

    def of_pod(self, pod: Pod) -> Demand | Denial:
        """Return the demand of the claims that are generated for a pod.

        A stored pod is never denied: its templates may have changed after its review.
        """
        return pod_claim_demands.demand_of_claims(pod, self, {})

    def card_claim(self, pod: Pod) -> str:
        """Return the name of a claim by which a pod uses cards, "" if none is known."""
        for named in pod.spec.resource_claims or ():
            if any(map(_takes_cards, self._demands(pod, named))):
                return named.name
        extended = self._at(pod, EXTENDED)
        names = (item.metadata.name for item in extended if _takes_cards(self.of_claim(item)))
        return next(names, "")

    def _demands(self, pod: Pod, named: PodResourceClaim) -> list[Demand | Denial]:
        """Return the demands of the known claims of a pod by one name, else of their template."""
        namespace, template = pod.metadata.namespace, named.resource_claim_template_name
        if not template:
            claim = self.claims.of_name(namespace, named.resource_claim_name)
            return [] if claim is None else [self.of_claim(claim)]
        claims = self._at(pod, named.name)
        spec = None if claims else self.templates.get(namespace, template)
        if spec is None:
            return [self.of_claim(claim) for claim in claims]
        bound = self.bound(spec)
        return [bound if isinstance(bound, Denial) else bound.demand]

    def with_claim(self, pod_claim_name: str, claim: ResourceClaim) -> ClaimDemands:
        """Return the demands of pods whose claim of this name has the spec of `claim`."""
        return _WithClaim(self, {pod_claim_name: claim})

    @property
    def has_all_supply(self) -> bool:
        """Whether a class or slice that is not known did not exist a moment ago."""
        return self.classes.is_complete and not self.slices.problem

    async def prepare(self, namespace: str, names: Collection[str], until: float) -> Denial | None:
        """Read the templates of a review that are not cached, and their classes.

        Returns a transient denial if they cannot be read by loop time `until`. A missing template
        or class is not an error here.
        """
        deadline = read_deadline(until)
        for name in dict.fromkeys(names):
            try:
                await self.templates.ensure(self._cluster, namespace, name, deadline)
            except (ClusterError, TimeoutError, ValueError) as error:
                return undecided_denial(f"ResourceClaimTemplate {shown(name)}", _reason(error))
            spec = self.templates.get(namespace, name)
            denial = await self.prepare_classes(spec, deadline) if spec is not None else None
            if denial is not None:
                return denial
        return None

    async def read_claims(self, pod: Pod, until: float) -> Denial | None:
        """Read the claims of a stored pod that are not known; returns as `prepare`."""
        named = (*(pod.spec.resource_claims or ()), *(pod.status.resource_claim_statuses or ()))
        names = [each.resource_claim_name for each in named]
        extended = pod.status.extended_resource_claim_status
        if extended is not None:
            names.append(extended.resource_claim_name)
        return await self.read_named(pod.metadata.namespace, names, until)

    async def read_named(self, namespace: str, names: Iterable[str], until: float) -> Denial | None:
        """Read the claims of these names that are not known; returns as `prepare`.

        Only the active replica watches claims, so another one may lack them.
        """
        deadline = read_deadline(until)
        for name in names:
            if not name or self._cluster is None or self.claims.of_name(namespace, name):
                continue
            try:
                async with asyncio.timeout_at(deadline):
                    seen = await self._cluster.get_object(CLAIMS, namespace, name)
                if seen is not None:
                    self.claims.note_reviewed(claim_of(seen))
            except NotServed:
                return None
            except (ClusterError, TimeoutError, ValueError) as error:
                return undecided_denial(f"ResourceClaim {shown(name)}", _reason(error))
        return None

    async def prepare_classes(self, spec: ClaimSpec, deadline: float) -> Denial | None:
        """Read the classes of a claim that are not cached; returns as `prepare`."""
        problem = await self.wait_listed(deadline)
        if problem:
            return undecided_denial("the device classes and slices", problem)
        unknown = [name for name in class_names(spec) if self.classes.get("", name) is None]
        for name in unknown[:READ_CLASSES_MAX]:
            try:
                await self.classes.ensure(self._cluster, "", name, deadline)
            except (ClusterError, TimeoutError, ValueError) as error:
                return undecided_denial(f"DeviceClass {shown(name)}", _reason(error))
        return None

    def existing(self, pod: Pod, named: PodResourceClaim) -> tuple[tuple[ResourceClaim, ...], bool]:
        """Return the claims that count with a pod for one of its claims, and whether any exists.

        If several name the pod's claim, the one in the status of the pod counts, and those that are
        allocated: another writer of the status could name a smaller claim.
        """
        claims = self._at(pod, named.name)
        with_pod = tuple(claim for claim in claims if not self.has_own_entry(claim))
        shown_name = _name_in_status(pod, named.name)
        if any(claim.metadata.name == shown_name for claim in claims):
            with_pod = tuple(
                claim
                for claim in with_pod
                if claim.metadata.name == shown_name or claim.status.allocation is not None
            )
        return with_pod, bool(claims)

    def _at(self, pod: Pod, name: str) -> tuple[ResourceClaim, ...]:
        """Return the claims of the pod's namespace that name its claim `name`, or `EXTENDED`."""
        meta = pod.metadata
        known = self.claims.at((meta.uid, name)) if meta.uid else ()
        return tuple(claim for claim in known if claim.metadata.namespace == meta.namespace)


class _WithClaim(ClaimDemands):
    """The demands of pods in which one claim has a given spec."""

    def __init__(self, store: ClaimStore, instead: Mapping[str, ResourceClaim]) -> None:
        self._store, self._instead = store, instead

    def of_pod(self, pod: Pod) -> Demand | Denial:
        return pod_claim_demands.demand_of_claims(pod, self._store, self._instead)


def key_of(name: str) -> str:
    """Return the storage key of a claim in its namespace."""
    return f"{CLAIMS.name}/{name}"


def class_names(spec: ClaimSpec) -> tuple[str, ...]:
    """Return the names of the classes in all requests of a claim, each once."""
    names: dict[str, None] = {}
    for request in spec.devices.requests or ():
        for way in (request.exactly, *(request.first_available or ())):
            if way is not None:
                names[way.device_class_name] = None
    return tuple(names)


def _takes_cards(demand: Demand | Denial) -> bool:
    """Return whether a claim of this demand is charged for cards; a denied one has no devices."""
    return not isinstance(demand, Denial) and bool(demand.amounts or demand.unknown)


def _name_in_status(pod: Pod, name: str) -> str:
    """Return the name of the claim that the status of a pod has for its claim, "" without one."""
    for status in pod.status.resource_claim_statuses or ():
        if status.name == name:
            return status.resource_claim_name
    return ""


def _spec_of_template(seen: Workload) -> tuple[ClaimSpec, int]:
    spec = template_of(seen).spec.spec
    return spec, len(_encoder.encode(spec))


def _device_class(seen: Workload) -> tuple[DeviceClass, int]:
    item = class_of(seen)
    return item, len(_encoder.encode(item))


def _reason(error: Exception) -> str:
    return str(error) or "no answer in time"
