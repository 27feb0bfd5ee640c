"""The health of a node's cards by its announcement and the time."""

from datetime import UTC, datetime

import msgspec
import pytest

from extender.settlement.node_card_health import NodeRules, cards_of, read
from ledger.kube.api.objects import ApiNode
from ledger.kube.hami import annotation_keys
from ledger.kube.vendors.vendors import select_vendors

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
OLD = "Requesting_2026-03-01 11:00:00"
RULES = NodeRules(vendors=select_vendors(["nvidia", "hygon"]))


def health(vendor: str, handshake: str, allocatable: dict[str, str]) -> list[bool]:
    """Return how the cards of a node of one vendor are."""
    annotations = {
        annotation_keys.VENDOR_ANNOTATIONS[vendor].register: "card-1,4,100,100,T,0,true:",
        handshake: OLD,
    }
    body = {
        "metadata": {"name": "n1", "resourceVersion": "7", "annotations": annotations},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    registered = cards_of(read(msgspec.convert(body, ApiNode), RULES), None, NOW, lost=False)
    assert registered is not None
    return [card.healthy for card in registered[1]]


def test_an_old_question_counts_for_nvidias_cards_alone() -> None:
    assert health("nvidia", "hami.io/node-handshake", {}) == [False]
    assert health("hygon", "hami.io/node-handshake-dcu", {}) == [True]


@pytest.mark.parametrize(
    ("vendor", "count"), [("nvidia", "nvidia.com/gpu"), ("hygon", "hygon.com/dcunum")]
)
def test_cards_count_as_the_kubelet_has_some_to_allocate(vendor: str, count: str) -> None:
    assert health(vendor, "hami.io/node-handshake-dcu", {count: "4"}) == [True]
    assert health(vendor, "hami.io/node-handshake-dcu", {count: "0"}) == [False]
