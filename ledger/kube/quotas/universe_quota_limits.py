"""UniverseResourceQuota limits: for several namespaces and clusters, with their reach.

All conditions of a quota must hold: an object counts if its cluster, its namespace and the object
itself are selected. An omitted condition selects everything.
"""

from typing import Any, Final

import msgspec

from ledger.core.model import traits
from ledger.core.model.traits import Reach, Selection
from ledger.kube.api import label_selectors
from ledger.kube.api.label_selectors import LabelSelector, Warn, counting_more
from ledger.kube.api.objects import Quantities, ScopeSelector
from ledger.kube.quotas import hard_limits, quota_scopes
from ledger.kube.requests import recorded_labels
from ledger.kube.requests.demand_rules import DemandRules

_SHOWN_MAX: Final = 200


class UniverseSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Limits by quota key, with the selected clusters (by name), namespaces and objects."""

    hard: Quantities | None = None
    regions: list[str] | None = None
    clusters: list[str] | None = None
    cluster_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class UniverseLimits(msgspec.Struct, frozen=True):
    """The limits of a universe quota, by quota key, with its reach and its selected objects.

    `warnings` are sentences for the author of the quota.
    """

    limits: dict[str, int]
    warnings: tuple[str, ...] = ()
    reach: Reach = Reach()
    selects: Selection = ()


def spec_of(spec: dict[str, Any] | None) -> UniverseSpec:
    """Return the spec of a decoded object. Raises ValueError, which names the field."""
    try:
        return msgspec.convert(spec or {}, UniverseSpec)
    except msgspec.ValidationError as error:
        text = str(error).replace("`$", "`spec")
        raise ValueError(
            f"{text[:_SHOWN_MAX]}: apply the CRD that comes with this version"
        ) from error


def limits_of_universe(
    spec: UniverseSpec, rules: DemandRules, *, zero_is_unlimited: bool = False
) -> UniverseLimits:
    """Return the limits of a universe quota, its reach and its selection."""
    warnings: list[str] = []
    warn = warnings.append
    limits = hard_limits.read(spec.hard or {}, rules, warn, zero_is_unlimited=zero_is_unlimited)
    if not limits:
        return UniverseLimits({}, tuple(warnings))
    reach = _reach(spec, warn)
    scopes = quota_scopes.of_scopes(spec.scopes, spec.scope_selector, warn)
    labels = label_selectors.of_labels(
        spec.object_selector, "spec.objectSelector", counting_more(warn)
    )
    _warn_of_unrecorded(labels, warn)
    if scopes is None:
        return UniverseLimits({}, tuple(warnings))
    return UniverseLimits(limits, tuple(warnings), reach, (*scopes, *labels))


def lint_universe(spec: UniverseSpec, rules: DemandRules) -> tuple[str, ...]:
    """Return the messages for a user who creates or changes a universe quota."""
    own = limits_of_universe(spec, rules).warnings
    unlimited = [
        f"{key}: a universe quota limits nothing by this key; write limits. and one of"
        f" {', '.join(rules.charged)}"
        for key in sorted(spec.hard or {})
        if not hard_limits.is_managed(key, rules)
        and not any(text.startswith(f"{key}:") for text in own)
    ]
    return (*own, *unlimited)


def _reach(spec: UniverseSpec, warn: Warn) -> Reach:
    warn = counting_more(warn)
    clusters = (
        *label_selectors.of_names(traits.REGION, spec.regions),
        *label_selectors.of_names(traits.NAME, spec.clusters),
        *label_selectors.of_labels(spec.cluster_selector, "spec.clusterSelector", warn),
    )
    namespaces = (
        *label_selectors.of_names(traits.NAME, spec.namespaces),
        *label_selectors.of_labels(spec.namespace_selector, "spec.namespaceSelector", warn),
    )
    return Reach(clusters, namespaces)


def _warn_of_unrecorded(labels: Selection, warn: Warn) -> None:
    for label in labels:
        if not recorded_labels.is_recorded(label.key):
            warn(
                f"spec.objectSelector: the label {label.key} differs between the pods of one"
                " workload and is not recorded; select by another"
            )
