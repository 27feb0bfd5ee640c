"""ResourceQuota limits: the limits that a quota object sets, in the units of the ledger.

Kubernetes accepts `limits.nvidia.com/gpumem` and similar keys, shows them as used 0 and enforces
nothing; these keys are ours. Whatever is odd about a key becomes a warning that says what to
write instead, and never keeps the other keys from holding.
"""

import msgspec

from ledger.core.model.traits import Selection
from ledger.kube.api import selectors
from ledger.kube.api.objects import ResourceQuota
from ledger.kube.quotas import hard_limits
from ledger.kube.requests.demand_rules import DemandRules


class QuotaLimits(msgspec.Struct, frozen=True):
    """What a quota limits, by quota key, of the objects that `selects` selects.

    `warnings` are sentences for whoever wrote it.
    """

    limits: dict[str, int]
    warnings: tuple[str, ...] = ()
    selects: Selection = ()


def limits_of(
    quota: ResourceQuota, rules: DemandRules, *, zero_is_unlimited: bool = False
) -> QuotaLimits:
    """Return the limits of the managed resources that a quota sets, and what its scopes select.

    An explicit 0 is a limit of nothing, unless `zero_is_unlimited` asks for HAMi's older reading.
    """
    spec, warnings = quota.spec, list[str]()
    limits = hard_limits.read(
        spec.hard or {}, rules, warnings.append, zero_is_unlimited=zero_is_unlimited
    )
    if not limits:
        return QuotaLimits({}, tuple(warnings))
    selects = selectors.of_scopes(spec.scopes, spec.scope_selector, warnings.append)
    if selects is None:
        return QuotaLimits({}, tuple(warnings))
    return QuotaLimits(limits, tuple(warnings), selects)


def lint(quota: ResourceQuota, rules: DemandRules) -> tuple[str, ...]:
    """Return what to tell somebody who creates or changes a quota: sentences, each with a remedy.

    They are the warnings of `limits_of`, and hints at what holds but may not be what was meant.
    """
    return (*limits_of(quota, rules).warnings, *hard_limits.hints(quota.spec.hard or {}, rules))
