"""Claim object oracle: the charges for resource claims, from the objects of one API server.

A claim of a template counts with its pod, another one by itself. Where slices or templates changed,
the charge may be that of any of them, because an object keeps what it was admitted for.
"""

from collections.abc import Callable, Iterable

from ledger.kube.api.api_resources import CLAIM_TEMPLATES
from ledger.kube.api.objects import Pod, Workload
from simulation.model import resource_claims
from simulation.model.apiserver import SimulatedApiServer
from simulation.model.resource_claims import KEYS, Amounts
from simulation.model.settings import demand

StandsAlone = Callable[[str, str, str], bool]
"""Whether the ledger has an entry for the object at a qualified namespace and key with a uid."""


class ClaimObjectOracle:
    """The resource claims of one cluster. `stands_alone` is what no object shows."""

    def __init__(self, server: SimulatedApiServer, stands_alone: StandsAlone) -> None:
        self._server = server
        self._stands_alone = stands_alone
        self._by_owner: dict[str, list[Workload]] = {}
        for claim in server.claims():
            self._by_owner.setdefault(_owner(claim), []).append(claim)

    def is_alone(self, claim: Workload) -> bool:
        """Return whether the ledger charges a claim at its own key."""
        meta = claim.metadata
        space = f"{self._server.name}/{meta.namespace}"
        return self._stands_alone(space, KEYS + meta.name, meta.uid)

    def of_pod(self, pod: Pod, known: Amounts | None) -> Amounts:
        """Return the charge of a pod, of which the ledger has the `known` one."""
        own, possible = demand(pod), self._possible_of_pod(pod)
        return _explained(known, [_plus(own, part) for part in possible])

    def least_of_pod(self, pod: Pod) -> Amounts:
        """Return the least that an admitted pod was ever charged.

        While the watch of claims is late, it may be charged for an earlier claim, or as if its
        template were gone, or as if an earlier claim counted by itself.
        """
        own, uid = demand(pod), pod.metadata.uid
        owned = self._by_owner.get(uid, [])
        if len(owned) != 1 or not self.is_counted_with_pod(owned[0]):
            return own
        if uid in self._server.apart:
            return own
        if {} in self.of_template(pod.metadata.namespace, _template(pod), uid):
            return own
        history = self._server.others[KEYS[:-1]].history
        versions = [change.object for change in history if _owner(change.object) == uid]
        return _plus(own, _least(part for each in versions for part in self._possible(each)))

    def is_counted_with_pod(self, claim: Workload) -> bool:
        """Return whether a claim was admitted as part of its pod's charge, and still is."""
        return claim.metadata.uid in self._server.of_pods and not self.is_alone(claim)

    def of_claim(self, claim: Workload, known: Amounts | None) -> Amounts:
        """Return the charge of a claim, of which the ledger has the `known` one."""
        return _explained(known, self._possible(claim))

    def least(self, claim: Workload) -> Amounts:
        """Return the least that a claim was ever charged."""
        history = self._server.others[KEYS[:-1]].history
        uid = claim.metadata.uid
        versions = [change.object for change in history if change.object.metadata.uid == uid]
        return _least(part for version in versions for part in self._possible(version))

    def alone(self) -> list[Workload]:
        """Return the claims that are charged at their own keys."""
        pods = self._server.pods.objects
        with_pod = {
            (namespace, status.resource_claim_name): pod.metadata.uid
            for (namespace, _), pod in pods.items()
            for status in pod.status.resource_claim_statuses or ()
        }
        return [
            claim
            for claim in self._server.claims()
            if self.is_alone(claim)
            or not _owner(claim)
            or with_pod.get((claim.metadata.namespace, claim.metadata.name)) != _owner(claim)
        ]

    def of_root(self, namespace: str, template: str, uid: str) -> list[Amounts]:
        """Return the amounts by which an envelope may count each pod, latest last.

        The envelope is lowered by the part that an allocation saves, which stays saved. Where the
        bound changes, any part may be missing, because it was saved of an earlier bound.
        """
        history = self._server.others[KEYS[:-1]].history
        given = (
            resource_claims.allocated(change.object)
            for change in history
            if change.object.metadata.namespace == namespace and _owner(change.object)
        )
        saved = [amounts for amounts in given if amounts is not None]
        bounds = self.of_template(namespace, template, uid)
        is_changing = saved and any(bound != bounds[0] for bound in bounds)
        return [*([{}] if is_changing else []), *saved, *bounds]

    def of_template(self, namespace: str, name: str, uid: str) -> list[Amounts]:
        """Return the amounts of all versions of a template for an object with a uid, latest last.

        They are {} while it did not exist, and for an object that may not have been admitted, or
        lost its part for the claim meanwhile.
        """
        if not name:
            return [{}]
        history = self._server.others[CLAIM_TEMPLATES.name].history
        place = namespace, name
        server = self._server
        is_admitted = uid in server.reviewed and uid not in server.apart
        meant: list[Amounts] = [] if is_admitted and namespace not in server.lenient else [{}]
        for change in history:
            meta = change.object.metadata
            if (meta.namespace, meta.name) == place:
                spec = (change.object.spec or {})["spec"]
                meant += [{}] if change.deleted else self._bounds(spec)
        return meant or [{}]

    def _possible_of_pod(self, pod: Pod) -> list[Amounts]:
        owned = self._by_owner.get(pod.metadata.uid, [])
        counted = [claim for claim in owned if not self.is_alone(claim)]
        if counted:
            return [part for claim in counted for part in self._possible(claim)]
        if owned:
            return [{}]
        return self.of_template(pod.metadata.namespace, _template(pod), pod.metadata.uid)

    def _possible(self, claim: Workload) -> list[Amounts]:
        given = resource_claims.allocated(claim)
        return [given] if given is not None else self._bounds(claim.spec or {})

    def _bounds(self, spec: resource_claims.Manifest) -> list[Amounts]:
        return [resource_claims.bound(spec, supply) for supply in self._server.supplies] or [{}]


def _template(pod: Pod) -> str:
    """Return the template that a pod names, empty for none."""
    uses = pod.spec.resource_claims or ()
    return next((use.resource_claim_template_name for use in uses), "")


def _owner(claim: Workload) -> str:
    """Return the uid of the pod that controls a claim, empty for none."""
    owner = claim.metadata.controller()
    return owner.uid if owner is not None else ""


def _explained(known: Amounts | None, possible: list[Amounts]) -> Amounts:
    """Return the known amounts if each is a possible one, else the latest possible ones."""
    latest = possible[-1]
    if known is None:
        return latest
    names = {name for amounts in (known, *possible) for name in amounts}
    explained = all(
        known.get(name, 0) in {amounts.get(name, 0) for amounts in possible} for name in names
    )
    return known if explained else latest


def _plus(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _least(possible: Iterable[Amounts]) -> Amounts:
    parts = list(possible)
    names = {name for part in parts for name in part}
    least = {name: min(part.get(name, 0) for part in parts) for name in sorted(names)}
    return {name: amount for name, amount in least.items() if amount}
