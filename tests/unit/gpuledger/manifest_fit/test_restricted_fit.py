"""A fit for a caller who may not list cards: no nodes, and evictions of own pods only."""

import pytest

from extender.analysis.fit_suggestions import EVICT, EvictedPod, FitSuggestion
from gpuledger.manifest_fit.fit_report import NodeFit, PodFit, restricted


def fit(*victims: str) -> PodFit:
    """Return a fit that an eviction of pods in these namespaces would change."""
    evicted = [EvictedPod(namespace, "pods/p", 1_000) for namespace in victims]
    node = NodeFit("secret-node", False, 0, "no room", [], [], evicted)
    eviction = FitSuggestion(EVICT, 0, 0, ["secret-node"], "evict pods on secret-node")
    return PodFit("p", False, [node], [eviction], 0, 1, [])


@pytest.mark.parametrize(
    ("victims", "kept"),
    [(("own",), True), (("own", "own"), True), (("own", "other"), False), (("other",), False)],
)
def test_an_eviction_is_shown_if_all_its_pods_are_own(victims: tuple[str, ...], kept: bool) -> None:
    shown = restricted(fit(*victims), "own")
    assert shown.nodes == []
    assert bool(shown.changes) is kept


def test_an_eviction_of_no_pods_is_left_out() -> None:
    assert restricted(fit(), "own").changes == []
