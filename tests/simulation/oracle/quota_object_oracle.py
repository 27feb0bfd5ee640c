"""Quota object oracle: the right usage of every quota, from the objects of the API servers alone.

It is written from the rules and not from the code. A root is charged the larger of the most that
its spec may run at once (E) and the sum of its pods' requests (P). Every other object is charged by
itself. A quota counts the objects that it selects. Nothing of `ledger.core` or `webhook` is used.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from ledger.kube.api.api_resources import CLAIMS, NAMESPACES, POLICIES, UNIVERSE_QUOTAS
from ledger.kube.api.objects import ObjectMeta, Pod, ResourceQuota, Workload
from simulation.model import kinds
from simulation.model.apiserver import SimulatedApiServer, counts
from simulation.model.settings import demand
from simulation.oracle.claim_object_oracle import ClaimObjectOracle, StandsAlone

Amounts = dict[str, int]
Lines = dict[tuple[str, str], int]
"""Amounts by account and quota key."""

Known = Callable[[str, str], Amounts | None]
"""The committed entry of the ledger at a qualified namespace and key, None for nothing."""

Asked = Callable[[str, str], Amounts]
"""The requested and admitted amounts of the object at a qualified namespace and key."""

_THOUSAND: Final = ("k", "000")


class QuotaSubject(NamedTuple):
    """Labels and spec by which quotas select a pod."""

    app: str
    priority: str


class ChargeUnit(NamedTuple):
    """One charged unit; a quota that selects any of its pods counts all of it.

    Quotas over many namespaces count no more than was `asked` for, and what pods take.
    """

    namespace: str
    amounts: Amounts
    asked: Amounts
    faces: list[QuotaSubject]


def is_finished(job: Workload) -> bool:
    """Return whether a Job reports that it is over."""
    return any(
        condition["type"] == "Complete" for condition in (job.status or {}).get("conditions", ())
    )


def envelope(root: Workload, claimed: Amounts | None = None) -> Amounts:
    """Return the demand of everything that a root may run at once.

    `claimed` is the charge of each pod for its resource claim.
    """
    spec, status = root.spec or {}, root.status or {}
    count = kinds.count_of(root)
    if root.kind == kinds.JOBS.kind:
        left = int(spec["completions"]) - int(status.get("succeeded", 0))
        count = 0 if spec.get("suspend") else max(0, min(count, left))
    templates = kinds.templates_of(root)
    total: Counter[str] = Counter()
    for template, pods in zip(templates, (1, count)[-len(templates) :], strict=True):
        for resource, amount in (Counter(demand(_pod_of(template))) + Counter(claimed)).items():
            total[resource] += pods * amount
    return {resource: total[resource] for resource in sorted(total) if total[resource]}


def least(server: SimulatedApiServer, root: Workload) -> Amounts:
    """Return the least that the statuses of a root's present spec ever amounted to."""
    said = _said(server, root)
    return {resource: min(amounts.get(resource, 0) for amounts in said) for resource in said[-1]}


class QuotaObjectOracle:
    """The objects of one cluster, as they are now, at virtual `seconds`."""

    def __init__(
        self, server: SimulatedApiServer, seconds: float, stands_alone: StandsAlone
    ) -> None:
        self._server = server
        self._claims = ClaimObjectOracle(server, stands_alone)
        self._roots = {root.metadata.uid: root for root in server.roots()}
        self._pods = [pod for pod in server.pods.objects.values() if counts(pod, seconds)]

    def committed(self, known: Known) -> dict[tuple[str, str], tuple[str, Amounts]]:
        """Return uid and demand of everything that is charged something, by place."""
        charged = {
            self._place(pod, "pods"): (pod.metadata.uid, self._demand(pod, known))
            for pod in self._pods
        }
        for claim in self._claims.alone():
            place = self._place(claim, CLAIMS.name)
            charged[place] = claim.metadata.uid, self._claims.of_claim(claim, known(*place))
        for root in self._charged():
            place = self._place(root, kinds.resource_of(root).name)
            amounts = self._envelope(root, known(*place))
            if amounts:
                charged[place] = root.metadata.uid, amounts
        return charged

    def units(self, known: Known, asked: Asked) -> Iterator[ChargeUnit]:
        """Yield the charged units."""
        drawn: dict[str, Counter[str]] = {}
        charged = {
            root.metadata.uid: root for root in self._charged() if self._is_known(root, known)
        }
        for pod in self._pods:
            root = self.root_of(pod)
            if root is not None and root.metadata.uid in charged:
                drawn.setdefault(root.metadata.uid, Counter()).update(self._demand(pod, known))
            else:
                taken = self._demand(pod, known)
                yield ChargeUnit(self._space(pod), taken, taken, [_face(pod.metadata, pod)])
        for claim in self._claims.alone():
            taken = self._claims.of_claim(claim, known(*self._place(claim, CLAIMS.name)))
            face = QuotaSubject((claim.metadata.labels or {}).get(kinds.APP, ""), "")
            yield ChargeUnit(self._space(claim), taken, taken, [face])
        for uid, root in charged.items():
            place = self._place(root, kinds.resource_of(root).name)
            own, pods = Counter(self._envelope(root, known(*place))), drawn.get(uid, Counter())
            reviewed = (own & Counter(asked(*place))) | pods
            yield ChargeUnit(place[0], dict(own | pods), dict(reviewed), _faces(root))

    def root_of(self, item: Pod | Workload) -> Workload | None:
        """Return the highest object that controls another one, as far as each has made the next."""
        root: Workload | None = None
        while item.metadata.uid not in self._server.barred:
            owner = item.metadata.controller()
            above = self._roots.get(owner.uid) if owner is not None else None
            if above is None:
                break
            root = item = above
        return root

    def _charged(self) -> Iterator[Workload]:
        for root in self._roots.values():
            if self.root_of(root) is None and not is_finished(root):
                yield root

    def _is_known(self, root: Workload, known: Known) -> bool:
        """Return whether the ledger has a root; one that may run nothing it may have or not."""
        place = self._place(root, kinds.resource_of(root).name)
        return bool(self._envelope(root, known(*place))) or known(*place) is not None

    def _envelope(self, root: Workload, known: Amounts | None) -> Amounts:
        """Return the charge of a root, which a status alone never raises.

        A status that reported less for a while may have been observed or not. With resource claims,
        templates, devices and allocations may have lowered a part of it at any time.
        """
        if _policy(self._server, root.metadata.namespace).get("podsOnly"):
            return {}
        said = _said(self._server, root)
        most = said[-1]
        if known is None or known == most:
            return most
        if _template(root):
            return known if _is_between(said, known) else most
        return known if known in said and _is_less(known, most) else most

    def _demand(self, pod: Pod, known: Known) -> Amounts:
        return self._claims.of_pod(pod, known(*self._place(pod, "pods")))

    def _space(self, item: Pod | Workload | ResourceQuota) -> str:
        return f"{self._server.name}/{item.metadata.namespace}"

    def _place(self, item: Pod | Workload, kind: str) -> tuple[str, str]:
        return self._space(item), f"{kind}/{item.metadata.name}"


def limits(servers: Iterable[SimulatedApiServer]) -> dict[str, Amounts]:
    """Return the limits of every account, by account and quota key."""
    by_account = {}
    for number, server in enumerate(servers):
        for (space, name), quota in server.quotas.objects.items():
            by_account[f"quota/{server.name}/{space}/{name}"] = _hard(quota.spec.hard or {})
        if number == 0:
            for (_, name), universe in server.others[UNIVERSE_QUOTAS.name].objects.items():
                by_account[f"universe/{name}"] = _hard((universe.spec or {})["hard"])
    return by_account


def used(
    servers: list[SimulatedApiServer],
    seconds: float,
    known: Known,
    asked: Asked,
    stands_alone: StandsAlone,
) -> Lines:
    """Return the expected usage of every line of every account."""
    lines: Lines = {}
    units = {
        server.name: list(QuotaObjectOracle(server, seconds, stands_alone).units(known, asked))
        for server in servers
    }
    for server in servers:
        for (space, name), quota in server.quotas.objects.items():
            account = f"quota/{server.name}/{space}/{name}"
            inside = [
                unit for unit in units[server.name] if unit.namespace == f"{server.name}/{space}"
            ]
            counted = [
                unit for unit in inside if any(_has_class(quota, face) for face in unit.faces)
            ]
            _add_up(lines, account, quota.spec.hard or {}, counted)
    everything = [
        unit._replace(amounts=unit.asked) for of_cluster in units.values() for unit in of_cluster
    ]
    for (_, name), universe in servers[0].others[UNIVERSE_QUOTAS.name].objects.items():
        spec = universe.spec or {}
        counted = [unit for unit in everything if _is_reached(spec, unit, servers)]
        _add_up(lines, f"universe/{name}", spec["hard"], counted)
    return lines


def descriptions(servers: Iterable[SimulatedApiServer]) -> dict[str, str]:
    """Return the traits that the ledger must have of clusters and namespaces."""
    texts = {}
    for server in servers:
        region = f",!region={server.region}" if server.region else ""
        texts[server.name] = f"!name={server.name}{region}"
        for (_, name), namespace in server.others[NAMESPACES.name].objects.items():
            labels = "".join(f",{key}={text}" for key, text in sorted(_labels(namespace).items()))
            texts[f"{server.name}/{name}"] = f"!name={name}{labels}"
    return texts


def _said(server: SimulatedApiServer, root: Workload) -> list[Amounts]:
    """Return the envelopes of the statuses of a root's present spec, the last one last.

    Each has one for everything that the template of resource claims may ever have meant.
    """
    meta = root.metadata
    possible: list[Amounts] = [{}]
    if _template(root):
        claims = ClaimObjectOracle(server, lambda *_: False)
        possible = claims.of_root(meta.namespace, _template(root), meta.uid)
    return [
        envelope(change.object, claimed)
        for change in server.others[kinds.resource_of(root).name].history
        if change.object.metadata.uid == meta.uid
        and change.object.metadata.generation == meta.generation
        for claimed in possible
    ]


def _template(root: Workload) -> str:
    """Return the template of the resource claims of a root's pods, empty for none."""
    uses = kinds.templates_of(root)[-1]["spec"].get("resourceClaims") or ()
    return next((str(use["resourceClaimTemplateName"]) for use in uses), "")


def _add_up(lines: Lines, account: str, hard: Any, counted: list[ChargeUnit]) -> None:
    for key in hard:
        resource = key.partition(".")[2]
        lines[account, key] = sum(unit.amounts.get(resource, 0) for unit in counted)


def _has_class(quota: ResourceQuota, face: QuotaSubject) -> bool:
    selector = quota.spec.scope_selector
    wanted = (
        [expression.values or [] for expression in (selector.match_expressions or ())]
        if selector
        else []
    )
    return all(face.priority in values for values in wanted)


def _is_reached(spec: dict[str, Any], unit: ChargeUnit, servers: list[SimulatedApiServer]) -> bool:
    """Return whether a universe quota counts a unit."""
    cluster, _, space = unit.namespace.partition("/")
    server = next(candidate for candidate in servers if candidate.name == cluster)
    namespace = server.others[NAMESPACES.name].objects["", space]
    labels = spec.get("namespaceSelector", {}).get("matchLabels", {})
    app = spec.get("objectSelector", {}).get("matchLabels", {}).get(kinds.APP)
    return (
        ("clusters" not in spec or cluster in spec["clusters"])
        and ("regions" not in spec or server.region in spec["regions"])
        and all(_labels(namespace).get(key) == text for key, text in labels.items())
        and (app is None or any(face.app == app for face in unit.faces))
    )


def _policy(server: SimulatedApiServer, namespace: str) -> dict[str, Any]:
    """Return the spec of the policy of a namespace; each has its own name."""
    policy = server.others[POLICIES.name].objects.get(("", namespace))
    return (policy.spec or {}) if policy is not None else {}


def _faces(root: Workload) -> list[QuotaSubject]:
    """Return the traits of each template of a root; labels of the root itself come first."""
    pods = [_pod_of(template) for template in kinds.templates_of(root)]
    return [_face(root.metadata, pod) for pod in pods]


def _face(meta: ObjectMeta, pod: Pod) -> QuotaSubject:
    own = pod.metadata.labels or {}
    app = (meta.labels or {}).get(kinds.APP, own.get(kinds.APP, ""))
    return QuotaSubject(app, pod.spec.priority_class_name)


def _pod_of(template: kinds.Manifest) -> Pod:
    return kinds.pod_of(template, "", None)


def _labels(namespace: Workload) -> dict[str, str]:
    return namespace.metadata.labels or {}


def _hard(hard: Any) -> Amounts:
    return {key: int(str(text).replace(*_THOUSAND)) for key, text in hard.items()}


def _is_between(said: list[Amounts], known: Amounts) -> bool:
    """Return whether each known amount lies between the least and the most that was possible."""
    names = {resource for amounts in (known, *said) for resource in amounts}
    return all(
        min(amounts.get(name, 0) for amounts in said)
        <= known.get(name, 0)
        <= max(amounts.get(name, 0) for amounts in said)
        for name in names
    )


def _is_less(left: Amounts, right: Amounts) -> bool:
    return all(amount <= right.get(resource, 0) for resource, amount in left.items())
