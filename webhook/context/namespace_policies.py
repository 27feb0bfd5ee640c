"""Namespace policies: how requests in a namespace are treated, by LedgerPolicies and settings.

Of the policies that select a namespace, only the one with the highest priority applies; of several
with that priority, the first by name. The settings apply to a namespace that no policy selects.
After an invalid change, a policy keeps its last valid spec and is named in `problems`.
"""

import asyncio
from collections.abc import Collection
from typing import Annotated, Final, Literal

import msgspec
import structlog
from msgspec import Meta

from ledger.core.model import traits
from ledger.core.model.traits import Selection
from ledger.kube.api import label_selectors
from ledger.kube.api.cluster_ports import Change, Changed, Listed, Reached
from ledger.kube.api.label_selectors import LabelSelector
from ledger.kube.api.objects import Quantities, Workload
from ledger.kube.requests import namespace_traits
from webhook.api.admission_review import UserInfo
from webhook.context.namespace_labels import Namespaces
from webhook.context.read_deadline import read_deadline
from webhook.kinds.workload_envelope import Surge

Mode = Literal["enforce", "warn", "off"]
OnExceeded = Literal["deny", "pending"]
Elastic = Literal["current", "max"]
ForeignHolders = Literal["namespace", "none"]
MissingClaimTemplates = Literal["defer", "deny"]
UnmappedDeviceClasses = Literal["deny", "warn"]

_SHOWN_MAX: Final = 200
_log: Final = structlog.get_logger("webhook")


class DefaultQuota(msgspec.Struct, frozen=True):
    """The ResourceQuota that is created in a namespace without a quota of that name."""

    hard: Quantities
    name: str = "gpuledger-default"


class NamespacePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The treatment of a namespace; `name` names the LedgerPolicy, empty for the settings.

    `mode` applies to requests beyond limits: `enforce` refuses them, `warn` charges them with a
    warning, `off` neither charges nor refuses anything. `on_exceeded` applies to a pod that exceeds
    a quota: it is refused, or created and waits. `elastic` is the size for which a workload with an
    autoscaler is charged: its current size, or the largest one. With `pods_only`, workloads are
    charged nothing, and their pods are charged. Requests of exempt users and groups may exceed
    limits, and are charged. `foreign_holders` selects whether a denial lists other namespaces that
    use a shared quota, each with its share. `missing_claim_templates` applies to a pod or workload
    that names a ResourceClaimTemplate which does not exist: its claim is charged when it is
    created, or the request is refused. `unmapped_device_classes` applies to requests of a device
    class that may select GPUs and is not mapped to charged resources.
    """

    mode: Mode = "enforce"
    on_exceeded: OnExceeded = "deny"
    surge: Surge = "opportunistic"
    elastic: Elastic = "current"
    pods_only: bool = False
    exempt_users: tuple[str, ...] = ()
    exempt_groups: tuple[str, ...] = ()
    default_quota: DefaultQuota | None = None
    foreign_holders: ForeignHolders = "namespace"
    missing_claim_templates: MissingClaimTemplates = "defer"
    unmapped_device_classes: UnmappedDeviceClasses = "deny"
    name: str = ""

    @property
    def charges_roots(self) -> bool:
        """Whether workloads are charged before their pods are."""
        return not self.pods_only and self.on_exceeded == "deny"

    @property
    def elastic_max(self) -> bool:
        """Whether a workload is charged for its largest size under an autoscaler."""
        return self.elastic == "max"

    def may_exceed_limits(self, user: UserInfo) -> bool:
        """Return whether a user's requests are admitted and charged beyond limits."""
        if self.mode == "warn" or user.username in self.exempt_users:
            return True
        return bool(self.exempt_groups) and not set(self.exempt_groups).isdisjoint(user.groups)


class _Exempt(msgspec.Struct, frozen=True):
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of a LedgerPolicy; its CustomResourceDefinition describes the fields."""

    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0
    mode: Mode = "enforce"
    on_exceeded: OnExceeded = "deny"
    surge: Surge = "opportunistic"
    elastic: Elastic = "current"
    pods_only: bool = False
    exempt: _Exempt = _Exempt()
    default_quota: DefaultQuota | None = None
    foreign_holders: ForeignHolders = "namespace"
    missing_claim_templates: MissingClaimTemplates = "defer"
    unmapped_device_classes: UnmappedDeviceClasses = "deny"


class _Ranked(msgspec.Struct, frozen=True):
    """A policy with its selected namespaces and its rank; the lowest rank applies."""

    rank: tuple[int, str]
    selects: Selection
    policy: NamespacePolicy


class Policies:
    """The policies of one cluster. `listed` is set once all were listed, or cannot be listed.

    `existing` are the policies by name, as they are stored, also invalid ones. `revision` grows
    whenever other policies may apply to a known namespace.
    """

    def __init__(self, default: NamespacePolicy, namespaces: Namespaces) -> None:
        """`default` applies to namespaces that no policy selects."""
        self.listed = asyncio.Event()
        self.existing: dict[str, Workload] = {}
        self.revision = 0
        self._default = default
        self._namespaces = namespaces
        self._ranked: dict[str, _Ranked] = {}
        self._problems: dict[str, str] = {}
        self._of: dict[str, NamespacePolicy] = {}

    def of(self, namespace: str) -> NamespacePolicy:
        """Return the policy of a namespace; unknown labels are taken as none."""
        if not self._ranked:
            return self._default
        policy = self._of.get(namespace)
        if policy is None:
            policy = self._select(namespace)
            if self._namespaces.labels_of(namespace) is not None:
                self._of[namespace] = policy
        return policy

    def selects(self, name: str, namespace: str) -> bool:
        """Return whether a policy selects a namespace, also if another one applies to it."""
        ranked = self._ranked.get(name)
        return ranked is not None and traits.matches(ranked.selects, (self._traits(namespace),))

    def priority_of(self, name: str) -> int:
        """Return the priority of a policy that applies to a namespace."""
        return -self._ranked[name].rank[0]

    def problem_of(self, name: str) -> str:
        """Return the error of an invalid policy, "" for a valid one."""
        return self._problems.get(name, "")

    def has_valid_spec(self, name: str) -> bool:
        """Return whether a policy is used: it is valid, or was valid before its last change."""
        return name in self._ranked

    def is_in_use(self) -> bool:
        """Return whether there is any policy, for which the labels of namespaces matter."""
        return bool(self._ranked)

    async def policy_of(self, namespace: str, until: float) -> NamespacePolicy:
        """Return the policy of a namespace once the policies and the namespace's labels are known.

        Waits for them until loop time `until`, `REVIEW_READ_SECONDS` at most.
        """
        if not self.listed.is_set():
            await self._wait_for_list(read_deadline(until))
        if self._ranked and self._namespaces.labels_of(namespace) is None:
            await self._namespaces.read(namespace, read_deadline(until))
        return self.of(namespace)

    def have_pods_wait(self) -> bool:
        """Return whether any policy lets pods wait instead of refusing them."""
        policies = (self._default, *(ranked.policy for ranked in self._ranked.values()))
        return any(
            policy.on_exceeded == "pending" and policy.mode == "enforce" for policy in policies
        )

    def problems(self) -> list[str]:
        """Return the invalid policies, each with its error."""
        return [f"LedgerPolicy {name}: {why}" for name, why in sorted(self._problems.items())]

    def take(self, change: Change[Workload]) -> None:
        """Apply a change from the watch."""
        if isinstance(change, Reached):
            return
        self.listed.set()
        if isinstance(change, Listed):
            names = {policy.metadata.name for policy in change.objects}
            for gone in [name for name in self.existing if name not in names]:
                self._forget(gone)
            for policy in change.objects:
                self._set(policy)
        elif isinstance(change, Changed) and change.deleted:
            self._forget(change.object.metadata.name)
        elif isinstance(change, Changed):
            self._set(change.object)

    def relabelled(self, namespaces: Collection[str]) -> None:
        """Select again for namespaces whose labels have changed."""
        if namespaces:
            self.revision += 1
        for name in namespaces:
            self._of.pop(name, None)

    async def _wait_for_list(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self.listed.wait()
        except TimeoutError:
            return

    def _select(self, namespace: str) -> NamespacePolicy:
        text = self._traits(namespace)
        for ranked in sorted(self._ranked.values(), key=lambda ranked: ranked.rank):
            if traits.matches(ranked.selects, (text,)):
                return ranked.policy
        return self._default

    def _traits(self, namespace: str) -> str:
        return namespace_traits.of_namespace(namespace, self._namespaces.labels_of(namespace))

    def _select_again(self) -> None:
        self._of.clear()
        self.revision += 1

    def _set(self, seen: Workload) -> None:
        name, before = seen.metadata.name, self.existing.get(seen.metadata.name)
        self.existing[name] = seen
        if before is not None and before.spec == seen.spec:
            return  # a write of the status, above all our own
        self._select_again()
        try:
            self._ranked[name] = _ranked(seen)
        except ValueError as error:
            if self._problems.get(name) != str(error):
                _log.warning("policy_not_understood", key=name, reason=str(error))
            self._problems[name] = str(error)
        else:
            self._problems.pop(name, None)

    def _forget(self, name: str) -> None:
        self._select_again()
        self.existing.pop(name, None)
        self._ranked.pop(name, None)
        self._problems.pop(name, None)


def lint(seen: Workload) -> tuple[str, ...]:
    """Return the warnings about a LedgerPolicy that a user writes."""
    try:
        policy = _ranked(seen).policy
    except ValueError as error:
        return (f"this policy is not used: {error}",)
    warnings = []
    if policy.mode == "off" and policy.default_quota is not None:
        warnings.append("spec.defaultQuota: with mode off the quota is made and limits nothing")
    for cause in _uncharged(policy):
        if policy.surge != "opportunistic":
            warnings.append(f"spec.surge: {policy.surge} has no effect where {cause}")
        if policy.elastic_max:
            warnings.append(f"spec.elastic: max has no effect where {cause}")
    return tuple(warnings)


def default_limits(seen: Workload) -> Quantities:
    """Return the limits in the default quota of a LedgerPolicy. Raises ValueError."""
    wanted = _ranked(seen).policy.default_quota
    return wanted.hard if wanted is not None else {}


def _uncharged(policy: NamespacePolicy) -> list[str]:
    """Return the fields for which a policy charges workloads nothing."""
    causes = ["onExceeded is pending"] if policy.on_exceeded == "pending" else []
    return [*causes, "podsOnly is true"] if policy.pods_only else causes


def _ranked(seen: Workload) -> _Ranked:
    """Return a LedgerPolicy with its rank. Raises ValueError, which names the field.

    An invalid condition invalidates the policy, while that of a quota is left out: a policy that
    selects more namespaces than intended could switch a quota off.
    """
    try:
        spec = msgspec.convert(seen.spec or {}, _Spec)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`$", "`spec")[:_SHOWN_MAX]) from error
    odd: list[str] = []
    labels = label_selectors.of_labels(
        spec.namespace_selector, "spec.namespaceSelector", odd.append
    )
    if odd:
        raise ValueError(odd[0][:_SHOWN_MAX])
    policy = NamespacePolicy(
        mode=spec.mode,
        on_exceeded=spec.on_exceeded,
        surge=spec.surge,
        elastic=spec.elastic,
        pods_only=spec.pods_only,
        exempt_users=spec.exempt.users,
        exempt_groups=spec.exempt.groups,
        default_quota=spec.default_quota,
        foreign_holders=spec.foreign_holders,
        missing_claim_templates=spec.missing_claim_templates,
        unmapped_device_classes=spec.unmapped_device_classes,
        name=seen.metadata.name,
    )
    selects = (*label_selectors.of_names(traits.NAME, spec.namespaces), *labels)
    return _Ranked((-spec.priority, seen.metadata.name), selects, policy)
