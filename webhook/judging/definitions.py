"""Definitions of limits: never refused, but whoever writes one is told what it does not do."""

from typing import Final

from ledger.kube import quotas, universe
from ledger.kube.resources import POLICIES, QUOTAS, UNIVERSE_QUOTAS
from ledger.kube.rules import DemandRules
from webhook.review import Request, required_quota, required_workload
from webhook.surroundings import policies
from webhook.verdict import UNTOUCHED, Verdict

NAMES: Final = frozenset(one.name for one in (QUOTAS, UNIVERSE_QUOTAS, POLICIES))
"""The resources that are looked at, as keys name them."""

IGNORED: Final = (
    "this quota limits nothing: this cluster was told not to supply universe quotas"
    " (universe_authority); create it in the cluster that does"
)


def judge(
    request: Request, name: str, rules: DemandRules, *, universe_authority: bool = True
) -> Verdict:
    """Warn of what is odd about a definition. Raises BadReview.

    `universe_authority` says whether universe quotas of this cluster count.
    """
    warnings = _lint(request, name, rules)
    if name == UNIVERSE_QUOTAS.name and not universe_authority:
        warnings = (IGNORED, *warnings)
    return Verdict(warnings=warnings) if warnings else UNTOUCHED


def _lint(request: Request, name: str, rules: DemandRules) -> tuple[str, ...]:
    if name == QUOTAS.name:
        return quotas.lint(required_quota(request, "object"), rules)
    seen = required_workload(request, "object")
    if name == POLICIES.name:
        return policies.lint(seen)
    try:
        spec = universe.spec_of(seen.spec)
    except ValueError as error:
        return (f"this quota limits nothing: {error}",)
    return universe.lint_universe(spec, rules)
