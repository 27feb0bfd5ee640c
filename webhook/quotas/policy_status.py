"""LedgerPolicy status: the number of namespaces to which a policy applies, and its condition Ready.

The status is for people; no decision reads it. The active replica writes it, on change and every
few seconds at most.
"""

from collections import Counter
from typing import Final, NamedTuple

from ledger.kube.api.api_resources import POLICIES
from ledger.kube.api.objects import Workload
from ledger.tasks.periodic import CooperativeYield
from webhook.context.namespace_policies import Policies
from webhook.quotas.changed_statuses import ChangedStatusWriter
from webhook.quotas.status_conditions import READY, Condition, ObjectStatus
from webhook.settlement.charge_settlement_session import SettlementSession

WRITE_SECONDS: Final = 5.0
"""Period of the writes."""


class _Use(NamedTuple):
    """The use of a policy at a generation.

    `namespaces` is the number of those to which it applies. If another policy takes precedence in
    all that it selects, `shadow` names one of them with that policy and its priority.
    """

    generation: int
    namespaces: int
    shadow: str = ""


class PolicyStatusWriter:
    """Writes the statuses of one cluster's LedgerPolicies."""

    def __init__(self, session: SettlementSession) -> None:
        self._session = session
        self._policies = session.context.policies
        self._namespaces = session.context.namespaces
        self._statuses = ChangedStatusWriter(session, POLICIES)
        self._counted: tuple[int, int] | None = None
        self._uses: dict[str, _Use] = {}

    async def write(self) -> None:
        """Write the statuses that have changed, once the namespaces are listed."""
        names = self._namespaces.names()
        if names is None or not self._policies.existing:
            return
        # A review may read a new namespace before the watch reports it; the revision stays then.
        current = self._policies.revision, len(names)
        if current != self._counted:
            self._uses = await _uses(self._policies, names)
            self._counted = current
        await self._statuses.write(self._policies.existing, self._status)

    async def _status(self, policy: Workload, known: ObjectStatus) -> ObjectStatus | None:
        """Return the status that a policy should have, None until its namespaces are counted."""
        use = self._uses.get(policy.metadata.name)
        if use is None or use.generation != policy.metadata.generation:
            return None
        condition = _condition(self._policies, policy.metadata.name, use)
        shown = condition.shown(known, policy.metadata.generation, self._session.now())
        return {"namespaces": use.namespaces, "conditions": [shown]}


async def _uses(policies: Policies, namespaces: list[str]) -> dict[str, _Use]:
    """Return the use of each policy in these namespaces."""
    stride, applied = CooperativeYield(), Counter[str]()
    for namespace in namespaces:
        await stride.step()
        applied[policies.of(namespace).name] += 1
    uses = {}
    for name, policy in list(policies.existing.items()):
        shadow = "" if applied[name] else await _shadow(policies, name, namespaces)
        uses[name] = _Use(policy.metadata.generation, applied[name], shadow)
    return uses


async def _shadow(policies: Policies, name: str, namespaces: list[str]) -> str:
    """Return where another policy takes precedence of one without namespaces, "" for nowhere."""
    stride = CooperativeYield()
    for namespace in namespaces:
        await stride.step()
        if policies.selects(name, namespace):
            other = policies.of(namespace).name
            return f"{other} (spec.priority {policies.priority_of(other)}) in {namespace}"
    return ""


def _condition(policies: Policies, name: str, use: _Use) -> Condition:
    """Return the condition Ready of a policy."""
    problem = policies.problem_of(name)
    if problem:
        effect = "it applies to no namespace"
        if policies.has_valid_spec(name):
            effect = "the last valid spec of this policy applies"
        return Condition(
            READY, "False", "Invalid", f"{problem}. Correct this field; until then {effect}."
        )
    if use.shadow:
        message = (
            "Other policies take precedence in every namespace that it selects, for example"
            f" {use.shadow}. Set a higher spec.priority here for this policy to apply."
        )
        return Condition(READY, "False", "Shadowed", message)
    if not use.namespaces:
        return Condition(READY, "True", "NoNamespaces", "No namespace matches its selectors now.")
    unit = "namespace" if use.namespaces == 1 else "namespaces"
    return Condition(READY, "True", "Applied", f"It applies to {use.namespaces} {unit}.")
