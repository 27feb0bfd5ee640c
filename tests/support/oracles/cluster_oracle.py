"""Cluster oracle: the expected usage of every quota, from plain lists of the API server alone.

It is written from the pages, without any code of the product. A workload is charged the larger of
two amounts: the most that its spec may run at once, and the sum of its pods' requests. Other pods
are charged one by one. A quota counts the objects that it selects.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from support.oracles.kind_oracle import ENVELOPES, is_finished

Manifest = dict[str, Any]
Amounts = Counter[str]
Limits = dict[str, int]
Lines = dict[tuple[str, str, str], int]
"""Used amounts by namespace (empty for a quota over many), quota and key."""

CARDS: Final = "nvidia.com/gpu"
PER_CARD: Final = ("nvidia.com/gpumem", "nvidia.com/gpucores")
MANAGED: Final = (CARDS, *PER_CARD)
TYPE_ANNOTATION: Final = "nvidia.com/use-gputype"
GATE: Final = "gpuledger.io/quota"
_SUFFIXES: Final = {"k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20}


class QuotaSubject(NamedTuple):
    """Labels and spec by which a quota selects a pod."""

    labels: dict[str, str]
    spec: Manifest


class Ownership(NamedTuple):
    """The demand of one object: of a root its envelope, of a pod its requests.

    `root` is the name of the root that a pod draws from, empty when that has no envelope.
    """

    amounts: dict[str, int]
    root: str = ""


class ChargeUnit(NamedTuple):
    """One charged unit, and the pods by which quotas select it."""

    namespace: str
    key: str
    amounts: Amounts
    faces: list[QuotaSubject]


class ClusterLabels(NamedTuple):
    """The name, region and labels of a cluster in its service's settings."""

    cluster: str
    region: str = ""
    labels: Mapping[str, str] = MappingProxyType({})


class Snapshot(NamedTuple):
    """Everything of a cluster that matters, as listed. Every object carries its kind.

    `barred` are objects, `Kind/name`, that name a controller which did not make them: who made
    something is not in any list. `claims` are the resource claims that are charged by themselves;
    the charge of a pod or a template for its claims is in its field `claimed`. The envelope of a
    workload that allocations may have lowered is at most its field `lowered`.
    """

    place: ClusterLabels
    namespaces: list[Manifest]
    pods: list[Manifest]
    workloads: list[Manifest]
    quotas: list[Manifest]
    universe: list[Manifest]
    policies: list[Manifest]
    barred: frozenset[str] = frozenset()
    claims: tuple[tuple[Manifest, Amounts], ...] = ()


def lines_of(snapshot: Snapshot) -> Lines:
    """Return the expected usage of every line of every quota."""
    units = list(units_of(snapshot))
    lines: Lines = {}
    for quota in snapshot.quotas:
        space, name = quota["metadata"]["namespace"], quota["metadata"]["name"]
        counted = [unit for unit in units if unit.namespace == space]
        _count(lines, (space, name), quota["spec"], counted)
    for quota in snapshot.universe:
        spaces = _reached(quota["spec"], snapshot)
        counted = [unit for unit in units if unit.namespace in spaces]
        _count(lines, ("", quota["metadata"]["name"]), quota["spec"], counted)
    return lines


def units_of(snapshot: Snapshot) -> Iterator[ChargeUnit]:
    """Yield the charged units: roots with their pods, and pods that draw from no root."""
    owners = {workload["metadata"]["uid"]: workload for workload in snapshot.workloads}
    drawn: dict[str, Amounts] = {}
    for pod in filter(_counts, snapshot.pods):
        root = _live_root(pod, owners, snapshot.barred)
        if root is None or not _is_charged(root, snapshot):
            face = QuotaSubject(pod["metadata"].get("labels", {}), pod["spec"])
            yield ChargeUnit(pod["metadata"]["namespace"], _key(pod), demand_of(pod), [face])
        else:
            drawn.setdefault(root["metadata"]["uid"], Counter()).update(demand_of(pod))
    for workload in snapshot.workloads:
        if _is_live_root(workload, owners, snapshot.barred):
            envelope, faces = _envelope(workload, snapshot)
            charge = envelope | drawn.get(workload["metadata"]["uid"], Counter())
            yield ChargeUnit(workload["metadata"]["namespace"], _key(workload), charge, faces)
    for claim, amounts in snapshot.claims:
        face = QuotaSubject(claim["metadata"].get("labels", {}), {})
        yield ChargeUnit(claim["metadata"]["namespace"], _key(claim), amounts, [face])


def ownership_of(snapshot: Snapshot, namespace: str) -> dict[str, Ownership]:
    """Return the ownership of every object of a namespace that is charged, by its uid."""
    owners = {workload["metadata"]["uid"]: workload for workload in snapshot.workloads}
    ownerships: dict[str, Ownership] = {}
    for pod in filter(_counts, snapshot.pods):
        root = _live_root(pod, owners, snapshot.barred)
        name = root["metadata"]["name"] if root and _envelope(root, snapshot)[0] else ""
        ownerships[pod["metadata"]["uid"]] = Ownership(demand_of(pod), name)
    for workload in snapshot.workloads:
        if _is_live_root(workload, owners, snapshot.barred):
            ownerships[workload["metadata"]["uid"]] = Ownership(_envelope(workload, snapshot)[0])
    for claim, amounts in snapshot.claims:
        ownerships[claim["metadata"]["uid"]] = Ownership(amounts)
    here = {
        item["metadata"]["uid"]
        for item in (*snapshot.pods, *snapshot.workloads, *(claim for claim, _ in snapshot.claims))
        if item["metadata"]["namespace"] == namespace
    }
    return {
        uid: ownership for uid, ownership in ownerships.items() if uid in here and ownership.amounts
    }


def demand_of(template: Manifest) -> Amounts:
    """Return the demand of one pod: containers, init containers, sidecars, types, its claims."""
    spec = template["spec"]
    sidecars: Amounts = Counter()
    peak: Amounts = Counter()
    for container in spec.get("initContainers", ()):
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            sidecars += asked
            peak |= sidecars
        else:
            peak |= sidecars + asked
    running = sum((_asked(container) for container in spec["containers"]), sidecars)
    total = running | peak
    types = template.get("metadata", {}).get("annotations", {}).get(TYPE_ANNOTATION, "")
    for card_type in filter(None, types.lower().split(",")):
        total += Counter({f"{card_type}.{name}": total[name] for name in MANAGED})
    return total + Counter(template.get("claimed", {}))


def _asked(container: Manifest) -> Amounts:
    limits = container.get("resources", {}).get("limits", {})
    cards = _integer(limits.get(CARDS, "0"))
    return +Counter(
        {CARDS: cards} | {name: cards * _integer(limits.get(name, "0")) for name in PER_CARD}
    )


def _envelope(root: Manifest, snapshot: Snapshot) -> tuple[Amounts, list[QuotaSubject]]:
    idle = not _is_charged(root, snapshot)
    total: Amounts = Counter()
    faces: list[QuotaSubject] = []
    labels = root["metadata"].get("labels", {})
    reserve = _policy(root["metadata"]["namespace"], snapshot).get("surge") == "reserve"
    for template, count in ENVELOPES[root["kind"]](root, reserve=reserve):
        asked = demand_of(template)
        if asked:
            own = template.get("metadata", {}).get("labels", {})
            faces.append(QuotaSubject({**own, **labels}, template["spec"]))
        for resource, amount in asked.items():
            total[resource] += 0 if idle else count * amount
    if "lowered" in root:
        total &= Counter(root["lowered"])
    return +total, faces


def _is_charged(root: Manifest, snapshot: Snapshot) -> bool:
    """Return whether a root has an envelope, be it empty, that its pods draw from."""
    policy = _policy(root["metadata"]["namespace"], snapshot)
    pods_alone = policy.get("podsOnly", False) or policy.get("onExceeded") == "pending"
    return root["kind"] != "DaemonSet" and not pods_alone


def _root(item: Manifest, owners: dict[str, Manifest], barred: frozenset[str]) -> Manifest | None:
    """Walk up the controllers by uid to the highest that is known."""
    root = None
    while f"{item['kind']}/{item['metadata']['name']}" not in barred:
        references = item["metadata"].get("ownerReferences", ())
        above = [
            owners.get(reference["uid"]) for reference in references if reference.get("controller")
        ]
        if not above or above[0] is None:
            break
        item = root = above[0]
    return root


def _live_root(
    pod: Manifest, owners: dict[str, Manifest], barred: frozenset[str]
) -> Manifest | None:
    """Return the root that a pod draws from; one that is finished is none any more."""
    root = _root(pod, owners, barred)
    return None if root is None or is_finished(root["kind"], root) else root


def _is_live_root(workload: Manifest, owners: dict[str, Manifest], barred: frozenset[str]) -> bool:
    return _root(workload, owners, barred) is None and not is_finished(workload["kind"], workload)


def _counts(pod: Manifest) -> bool:
    """Return whether a pod counts: not finished, not past its grace, not waiting for room."""
    metadata, spec = pod["metadata"], pod["spec"]
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return False
    if GATE in [gate["name"] for gate in spec.get("schedulingGates", ())]:
        return False
    if "deletionTimestamp" not in metadata:
        return True
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds", 0))
    return datetime.now(UTC) < datetime.fromisoformat(metadata["deletionTimestamp"]) + grace


def _count(
    lines: Lines, account: tuple[str, str], spec: Manifest, counted: list[ChargeUnit]
) -> None:
    for key in spec["hard"]:
        resource = key.removeprefix("limits.").removeprefix("requests.")
        if resource == key or not resource.endswith(MANAGED):
            continue
        lines[*account, key] = sum(
            unit.amounts[resource]
            for unit in counted
            if any(_selects(spec, face) for face in unit.faces)
        )


def _selects(spec: Manifest, face: QuotaSubject) -> bool:
    conditions = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes", ())]
    conditions += spec.get("scopeSelector", {}).get("matchExpressions", ())
    in_scope = all(_in_scope(condition, face.spec) for condition in conditions)
    return in_scope and _labelled(spec.get("objectSelector", {}), face.labels)


def _in_scope(condition: Manifest, spec: Manifest) -> bool:
    scope = condition["scopeName"]
    if scope == "PriorityClass":
        name = spec.get("priorityClassName")
        return _meets(condition, {"key": name} if name else {}, "key")
    terminating = "activeDeadlineSeconds" in spec
    return {"Terminating": terminating, "NotTerminating": not terminating}[str(scope)]


def _labelled(selector: Manifest, labels: Mapping[str, str]) -> bool:
    return all(
        labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()
    ) and all(
        _meets(expression, labels, expression["key"])
        for expression in selector.get("matchExpressions", ())
    )


def _meets(condition: Manifest, values: Mapping[str, str], key: str) -> bool:
    wanted, operator = condition.get("values", []), condition["operator"]
    return {
        "In": key in values and values[key] in wanted,
        "NotIn": key not in values or values[key] not in wanted,
        "Exists": key in values,
        "DoesNotExist": key not in values,
    }[str(operator)]


def _reached(spec: Manifest, snapshot: Snapshot) -> set[str]:
    """Return the names of the namespaces that a quota over many covers here."""
    place = snapshot.place
    here = (
        place.cluster in spec.get("clusters", [place.cluster])
        and place.region in spec.get("regions", [place.region])
        and _labelled(spec.get("clusterSelector", {}), place.labels)
    )
    return {name for name, labels in _spaces(snapshot) if here and _covers(spec, name, labels)}


def _spaces(snapshot: Snapshot) -> Iterator[tuple[str, dict[str, str]]]:
    for namespace in snapshot.namespaces:
        yield namespace["metadata"]["name"], namespace["metadata"].get("labels", {})


def _covers(spec: Manifest, name: str, labels: dict[str, str]) -> bool:
    named = name in spec.get("namespaces", [name])
    return named and _labelled(spec.get("namespaceSelector", {}), labels)


def _policy(namespace: str, snapshot: Snapshot) -> Manifest:
    """Return the spec of the policy that holds in a namespace, nothing when none selects it."""
    labels = dict(_spaces(snapshot)).get(namespace, {})
    ranked = sorted(
        snapshot.policies,
        key=lambda policy: (-policy["spec"].get("priority", 0), policy["metadata"]["name"]),
    )
    selecting = (policy["spec"] for policy in ranked if _covers(policy["spec"], namespace, labels))
    return next(selecting, {})


def _key(item: Manifest) -> str:
    return f"{item['kind']}/{item['metadata']['name']}"


def _integer(quantity: str | int) -> int:
    """Read a whole quantity; the API server writes `8000` as `8k`."""
    text = str(quantity)
    digits = text.rstrip("kKMi")
    return int(digits) * _SUFFIXES.get(text[len(digits) :], 1)
