"""Fit report: where the pods of a manifest fit, with reasons and remedies, and its restriction.

A caller without the right to list cards in all namespaces gets a restricted report: counts of nodes
instead of nodes and cards, and evictions only of pods in its own namespace.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import structs

from extender.analysis.fit_report_cards import CardVerdict
from extender.analysis.fit_suggestions import EVICT, EvictedPod, FitSuggestion, counted
from webhook.admission.explanation import Explanation

REASONS_MAX: Final = 20
"""Most reasons in a summary, the most frequent first."""

CLAIMS_NAMED_MAX: Final = 4
"""Resource claims of a pod that a sentence names."""


class CardPart(msgspec.Struct, frozen=True):
    """A card that a container would have: MiB and percent of it."""

    container: str
    uuid: str
    memory: int
    cores: int


class NodeFit(msgspec.Struct, frozen=True):
    """Whether the pod fits on a node, with the score sent to the scheduler, 0 to 10.

    `taken` are the cards that it would have. `reason` is the reason why it does not fit, and
    `evict` are pods whose eviction would help, if that was searched.
    """

    node: str
    fits: bool
    score: int
    reason: str
    taken: list[CardPart]
    cards: list[CardVerdict]
    evict: list[EvictedPod]


class ReasonCount(msgspec.Struct, frozen=True):
    """A reason against a pod, and the number of nodes that have it."""

    reason: str
    nodes: int


class PodFit(msgspec.Struct, frozen=True):
    """A pod of the manifest: its name or the field of its template, its nodes, and changes that
    would help.

    It fits on `fitting` of `total` nodes with announced cards. `nodes` are the first of them, the
    best ones first. `reasons` count the nodes on which it does not fit. `claims` are the names of
    its resource claims: kube-scheduler's allocator chooses their devices, which is not tried, so
    that a pod with claims is not reported to fit.
    """

    pod: str
    fits: bool
    nodes: list[NodeFit]
    changes: list[FitSuggestion]
    fitting: int = 0
    total: int = 0
    reasons: list[ReasonCount] = []
    claims: tuple[str, ...] = ()

    def is_undecided(self) -> bool:
        """Return whether it fits, but for its resource claims, which are not tried."""
        return bool(self.claims) and (self.fitting > 0 or not self.total)

    def untried(self) -> str:
        """Return the sentence about resource claims, empty for a pod without any."""
        if not self.claims:
            return ""
        named = ", ".join(self.claims[:CLAIMS_NAMED_MAX])
        more = len(self.claims) - CLAIMS_NAMED_MAX
        return (
            f"kube-scheduler's allocator chooses the devices of its resource claims ({named}"
            + (f" and {more} more" if more > 0 else "")
            + "), which this does not try; only quotas and cards without claims were tried"
        )


class FitReport(msgspec.Struct, frozen=True):
    """The fit of a manifest's pods at a position of the log.

    `allowed` is the decision of the validating webhook, `answer` its message. A `restricted` report
    names no nodes and no cards. `offered_by_dra` is the number of the cluster's cards that were
    left out because ResourceSlices have them, None where slices are not known.
    """

    position: int
    namespace: str
    fits: bool
    allowed: bool
    answer: str
    pods: list[PodFit]
    restricted: bool = False
    offered_by_dra: int | None = None

    def left_out(self) -> str:
        """Return the sentence about cards in ResourceSlices, empty if none was left out."""
        if self.offered_by_dra == 0 or not any(pod.total for pod in self.pods):
            return ""
        if self.offered_by_dra is None:
            return (
                "Cards in ResourceSlices are not left out here: only a service of the cluster that"
                " lists them can."
            )
        cards = "1 card is" if self.offered_by_dra == 1 else f"{self.offered_by_dra} cards are"
        return (
            f"{cards} left out: ResourceSlices have them, and kube-scheduler's allocator gives them"
            " to resource claims."
        )

    def is_undecided(self) -> bool:
        """Return whether only resource claims are undecided, and all other requests fit."""
        return not self.fits and all(pod.fits or pod.is_undecided() for pod in self.pods)


class DecidedFit(msgspec.Struct, frozen=True):
    """A fit report, and the decision with its numbers from which the report has the answer."""

    decision: Explanation
    report: FitReport


def restricted(fit: PodFit, namespace: str) -> PodFit:
    """Return a fit without names of nodes and cards, except those of evictions in a namespace.

    `namespace` is a local name. An eviction is kept if all its pods are in it.
    """
    own = {
        node.node
        for node in fit.nodes
        if node.evict and all(victim.namespace == namespace for victim in node.evict)
    }
    return structs.replace(fit, nodes=[], changes=_restricted_changes(fit.changes, own))


def _restricted_changes(changes: Sequence[FitSuggestion], own: set[str]) -> list[FitSuggestion]:
    """Return suggestions without names of nodes, except evictions on these nodes."""
    kept = []
    for change in changes:
        if change.what != EVICT:
            kept.append(structs.replace(change, nodes=[], text=counted(change)))
        elif own.issuperset(change.nodes):
            kept.append(change)
    return kept
