"""Workload envelope: the amounts that all pods of an object may use at once, surge included.

The envelope follows from the spec and the status of the object, and from the description of its
kind.

Both webhooks, settlement and the recount use the same function, as they use `demand_of` for pods.
"""

from typing import Literal

import msgspec

from ledger.core.model.amounts import Amounts, minus, most_of, without_zeros
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.traits import Traits
from ledger.kube.api.objects import ObjectMeta, Workload
from ledger.kube.api.quoting import shown
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import Demand, demand_of
from ledger.kube.requests.pod_traits import bounded_traits, traits_of_template
from ledger.kube.requests.recorded_labels import RecordedLabels
from webhook.kinds.expressions import KindExpression
from webhook.kinds.kind_schema import WorkloadKind
from webhook.kinds.object_values import ExpressionScope, InvalidObject, Json, invalid_object
from webhook.kinds.pod_templates import Template, names_of, templates_of

Surge = Literal["opportunistic", "reserve", "strict"]
"""The charge of the additional pods of a rollout.

`opportunistic`: when they are created. `reserve`: from each change of the spec until it is rolled
out. `strict`: when they are created, and a rollout that could not end is refused.
"""


class Envelope(msgspec.Struct, frozen=True):
    """The amounts that an object may use at once, and the traits by which quotas select it.

    `unknown` is a resource whose amount is not known yet, requested at `unknown_field`; both are
    empty if all amounts are known. `assumed` are the resources whose amounts depend on the
    cluster's current cards. With `finished`, the object will never run pods again. `pods` is the
    number of equal pods in the demand, 0 if they differ; with `replicas`, the object's scale sets
    that number. `deferred` and `unresolved` are as in `Demand`.
    """

    demand: Amounts
    traits: Traits = ()
    unknown: str = ""
    unknown_field: str = ""
    finished: bool = False
    assumed: tuple[str, ...] = ()
    pods: int = 0
    replicas: bool = False
    deferred: Amounts = {}
    unresolved: bool = False


def envelope_of(
    kind: WorkloadKind,
    workload: Workload,
    rules: DemandRules,
    *,
    surge: Surge = "opportunistic",
    elastic_max: bool = False,
) -> Envelope | Denial:
    """Return the envelope of an object, or the denial of an invalid object.

    With `elastic_max`, the largest size under an autoscaler counts instead of the current size. The
    amounts are sorted by name and hold no zeros.
    """
    try:
        stage = _Stage.of(kind, workload, surge, elastic_max)
        demands = [
            (template, _demand(template, rules)) for template in templates_of(kind, workload)
        ]
        envelope = _envelope(demands, stage, workload.metadata, rules.labels)
        pods, replicas = _alike(kind, stage, demands)
        return msgspec.structs.replace(envelope, pods=pods, replicas=replicas)
    except InvalidObject as error:
        return error.denial


def surge_demand(
    kind: WorkloadKind, old: Workload, new: Workload, rules: DemandRules
) -> Amounts | Denial:
    """Return the amounts beyond the envelope that a rollout from `old` to `new` needs to end.

    Empty if no template changes.
    """
    try:
        if _contents(kind, old) == _contents(kind, new):
            return {}
        total: Amounts = {}
        for template in templates_of(kind, new):
            _add(total, _demand(template, rules).amounts, _least(template))
        return without_zeros(total)
    except InvalidObject as error:
        return error.denial


class _Stage(msgspec.Struct, frozen=True):
    """The stage of an object, which decides the number of its pods that count."""

    idle: bool
    finished: bool
    surging: bool
    elastic_max: bool

    @classmethod
    def of(
        cls, kind: WorkloadKind, workload: Workload, surge: Surge, elastic_max: bool
    ) -> "_Stage":
        scope = ExpressionScope(names_of(workload))
        finished = kind.finished is not None and kind.finished.truth(scope)
        suspended = kind.suspended is not None and kind.suspended.truth(scope)
        rolled_out = kind.rolled_out is None or kind.rolled_out.truth(scope)
        surging = surge == "reserve" and not rolled_out
        return cls(finished or suspended, finished, surging, elastic_max)

    def pods(self, template: Template) -> int:
        """Return the number of pods of a template that may run at once. Raises InvalidObject."""
        pods = template.pods
        count = pods.count.pods(template.scope)
        if self.elastic_max and pods.elastic_count is not None:
            count = max(count, pods.elastic_count.pods(template.scope))
        if self.surging and pods.surge is not None:
            count += pods.surge.pods(_counting(template.scope, count))
        return 0 if self.idle else count


def _envelope(
    demands: list[tuple[Template, Demand]],
    stage: _Stage,
    metadata: ObjectMeta,
    recorded: RecordedLabels,
) -> Envelope:
    total: Amounts = {}
    deferred: Amounts = {}
    unresolved = False
    traits: dict[str, None] = {}
    unknown = unknown_field = ""
    for template, demand in demands:
        if not demand.amounts and not demand.unknown and not demand.unresolved:
            continue
        meta, spec = template.pod.metadata, template.pod.spec
        traits[traits_of_template(meta, spec, metadata.labels, recorded)] = None
        pods = stage.pods(template)
        _add(total, minus(demand.amounts, demand.deferred), pods)
        unresolved = unresolved or (pods > 0 and demand.unresolved)
        if metadata.resource_version and not _has_room(deferred, demand.deferred, pods):
            unresolved = True  # the object was admitted with other templates of claims
        else:
            _add(deferred, demand.deferred, pods)
        if pods and demand.unknown and not unknown:
            unknown, unknown_field = demand.unknown, template.moved(demand.memory_unknown)
        elif pods and demand.unknown and demand.unknown != unknown:
            raise _both_unknown(template.moved(demand.memory_unknown), unknown, demand.unknown)
    assumed = tuple({name: None for _, demand in demands for name in demand.assumed})
    envelope = Envelope(
        without_zeros(total),
        bounded_traits(traits),
        unknown,
        unknown_field,
        stage.finished,
        assumed,
        unresolved=unresolved,
    )
    return _with_deferred(envelope, deferred) if deferred else envelope


def _with_deferred(envelope: Envelope, deferred: Amounts) -> Envelope:
    """Return an envelope with the demand for claims that do not exist. Raises InvalidObject."""
    total = dict(envelope.demand)
    _add(total, deferred, 1)
    return msgspec.structs.replace(
        envelope, demand=without_zeros(total), deferred=without_zeros(deferred)
    )


def _alike(
    kind: WorkloadKind, stage: _Stage, demands: list[tuple[Template, Demand]]
) -> tuple[int, bool]:
    """Return the number of equal pods in a demand, and whether the scale sets that number."""
    asking = [template for template, demand in demands if demand.amounts and stage.pods(template)]
    if len(asking) != 1:
        return 0, False
    pods = asking[0].pods
    is_more = (stage.surging and pods.surge is not None) or (
        stage.elastic_max and pods.elastic_count is not None
    )
    return stage.pods(asking[0]), not is_more and _is_scale(kind, pods.count)


def _is_scale(kind: WorkloadKind, count: KindExpression) -> bool:
    """Return whether a number of pods is exactly the replicas of the scale."""
    if kind.scale is None:
        return False
    return count.text.strip() in (kind.scale.text, f"default({kind.scale.text}, 1)")


def _demand(template: Template, rules: DemandRules) -> Demand:
    """Return the demand of one pod of a template. Raises InvalidObject."""
    demand = demand_of(template.pod, rules)
    if isinstance(demand, Denial):
        raise InvalidObject(template.refused(demand))
    return demand


def _add(total: Amounts, amounts: Amounts, pods: int) -> None:
    """Add the demand of this number of pods. Raises InvalidObject beyond `most_of`."""
    for resource, amount in amounts.items():
        sum_ = total.get(resource, 0) + pods * amount
        if sum_ > most_of(resource):
            raise invalid_object(
                f"{resource} of all pods comes to {shown(sum_)}, which is beyond"
                f" {most_of(resource)}",
                "spec",
                shown(sum_),
                "Ask for less: no cluster has that much",
                Reason.INVALID_QUANTITY,
            )
        total[resource] = sum_


def _has_room(total: Amounts, amounts: Amounts, pods: int) -> bool:
    """Return whether a sum with the demand of this number of pods stays well below `most_of`."""
    return all(
        total.get(resource, 0) + pods * amount <= most_of(resource) // 2
        for resource, amount in amounts.items()
    )


def _least(template: Template) -> int:
    pods = template.pods
    if pods.surge_least is None:
        return 0
    return pods.surge_least.pods(_counting(template.scope, pods.count.pods(template.scope)))


def _counting(scope: ExpressionScope, count: int) -> ExpressionScope:
    """Return a scope in which `count` is known."""
    return msgspec.structs.replace(scope, names={**scope.names, "count": count})


def _contents(kind: WorkloadKind, workload: Workload) -> list[Json]:
    names = names_of(workload)
    return [place.value for pods in kind.pod_sets for place in pods.path.places(names)]


def _both_unknown(field: str, resource: str, other: str) -> InvalidObject:
    return invalid_object(
        f"the object takes an amount of {resource} and of {other} that is not known",
        field,
        "",
        f"Ask for MiB with {other}, or set worst_card_memory to the memory to assume",
        Reason.CARD_MEMORY_UNKNOWN,
    )
