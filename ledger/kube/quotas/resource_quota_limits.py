"""ResourceQuota limits: the limits and scopes of a ResourceQuota, and the warnings about them.

`hard_limits` reads the keys and quantities.

Kubernetes accepts `limits.nvidia.com/gpumem` and similar keys, shows them as used 0 and does not
enforce them; gpuledger enforces them. An invalid key causes a warning with a remedy, and the other
keys are enforced in any case.
"""

import msgspec

from ledger.core.model.traits import Selection
from ledger.kube.api.objects import ResourceQuota
from ledger.kube.quotas import hard_limits, quota_scopes
from ledger.kube.requests.demand_rules import DemandRules


class QuotaLimits(msgspec.Struct, frozen=True):
    """The limits of a quota, by quota key, for the objects that `selects` selects.

    `warnings` are sentences for the author of the quota.
    """

    limits: dict[str, int]
    warnings: tuple[str, ...] = ()
    selects: Selection = ()


def limits_of(
    quota: ResourceQuota, rules: DemandRules, *, zero_is_unlimited: bool = False
) -> QuotaLimits:
    """Return the limits of the managed resources that a quota sets, and its selection by scopes.

    An explicit 0 allows nothing. With `zero_is_unlimited` it sets no limit, as in older HAMi
    releases.
    """
    spec, warnings = quota.spec, list[str]()
    limits = hard_limits.read(
        spec.hard or {}, rules, warnings.append, zero_is_unlimited=zero_is_unlimited
    )
    if not limits:
        return QuotaLimits({}, tuple(warnings))
    selects = quota_scopes.of_scopes(spec.scopes, spec.scope_selector, warnings.append)
    if selects is None:
        return QuotaLimits({}, tuple(warnings))
    return QuotaLimits(limits, tuple(warnings), selects)


def lint(quota: ResourceQuota, rules: DemandRules) -> tuple[str, ...]:
    """Return the messages for a user who creates or changes a quota: sentences with remedies.

    They are the warnings of `limits_of`, and hints about limits that may surprise the user.
    """
    return (*limits_of(quota, rules).warnings, *hard_limits.hints(quota.spec.hard or {}, rules))
