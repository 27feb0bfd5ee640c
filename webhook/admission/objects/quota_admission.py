"""Quota admission: writes of ResourceQuotas, UniverseResourceQuotas and LedgerPolicies.

An invalid amount is refused, and other mistakes cause a warning. An amount that the object had
before the update may stay; otherwise no other field of the object could be changed.
"""

from typing import Final

from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.api_resources import POLICIES, QUOTAS, UNIVERSE_QUOTAS
from ledger.kube.api.objects import Quantities
from ledger.kube.api.quoting import shown
from ledger.kube.quotas import hard_limits, resource_quota_limits, universe_quota_limits
from ledger.kube.quotas.hard_limits import InvalidQuantity
from ledger.kube.requests.demand_rules import DemandRules
from webhook.admission.verdict import UNTOUCHED, Verdict
from webhook.api.admission_review import (
    AdmissionRequest,
    BadReview,
    Field,
    required_quota,
    required_workload,
)
from webhook.context import namespace_policies

NAMES: Final = frozenset(resource.name for resource in (QUOTAS, UNIVERSE_QUOTAS, POLICIES))
"""The resources that are checked, by name and group."""

IGNORED: Final = (
    "this quota limits nothing: this cluster is configured not to supply universe quotas"
    " (universe_authority); create it in the cluster that does"
)

_HARD: Final = "spec.hard"
_DEFAULT_HARD: Final = "spec.defaultQuota.hard"


def lint_quota(
    request: AdmissionRequest, name: str, rules: DemandRules, *, universe_authority: bool = True
) -> Verdict:
    """Refuse invalid amounts, and warn of other mistakes. Raises BadReview.

    With `universe_authority`, universe quotas of this cluster count.
    """
    invalid = list(
        hard_limits.invalid_quantities(
            _limits(request, name, "object"), _before(request, name), rules
        )
    )
    if invalid:
        return Verdict(_denial(invalid, _DEFAULT_HARD if name == POLICIES.name else _HARD))
    warnings = _lint(request, name, rules)
    if name == UNIVERSE_QUOTAS.name and not universe_authority:
        warnings = (IGNORED, *warnings)
    return Verdict(warnings=warnings) if warnings else UNTOUCHED


def _denial(invalid: list[InvalidQuantity], where: str) -> Denial:
    """Return the denial of an object with invalid amounts; it names each of them."""
    first = invalid[0]
    return Denial(
        Reason.INVALID_QUANTITY,
        "; ".join(
            f"{quantity.key} is {quantity.value}, which {quantity.why}" for quantity in invalid
        ),
        transient=False,
        remedy="; ".join(dict.fromkeys(quantity.remedy for quantity in invalid)),
        field=f"{where}[{shown(first.key)}]",
        value=first.value,
    )


def _before(request: AdmissionRequest, name: str) -> Quantities:
    """Return the limits before an update, empty if they cannot be read."""
    if request.operation != "UPDATE":
        return {}
    try:
        return _limits(request, name, "oldObject")
    except BadReview:
        return {}


def _limits(request: AdmissionRequest, name: str, field: Field) -> Quantities:
    """Return the limits of an object, empty if they cannot be read. Raises BadReview."""
    if name == QUOTAS.name:
        return required_quota(request, field).spec.hard or {}
    seen = required_workload(request, field)
    try:
        if name == POLICIES.name:
            return namespace_policies.default_limits(seen)
        return universe_quota_limits.spec_of(seen.spec).hard or {}
    except ValueError:
        return {}  # the lint warns that it is not used


def _lint(request: AdmissionRequest, name: str, rules: DemandRules) -> tuple[str, ...]:
    if name == QUOTAS.name:
        return resource_quota_limits.lint(required_quota(request, "object"), rules)
    seen = required_workload(request, "object")
    if name == POLICIES.name:
        return namespace_policies.lint(seen)
    try:
        spec = universe_quota_limits.spec_of(seen.spec)
    except ValueError as error:
        return (f"this quota limits nothing: {error}",)
    return universe_quota_limits.lint_universe(spec, rules)
