"""The slice feed: the cards of a node go on to the extender after each change of its slices."""

from collections.abc import Mapping

from support.claims.kept_slices import HAMI, NVIDIA, kept

from ledger.kube.api.cluster_ports import Changed, Interrupted, Listed
from ledger.kube.resource_claims.device_classes import class_mapping
from ledger.kube.resource_claims.device_supply import DeviceSupply
from webhook.context.resource_claims.slice_feed import SliceFeed


def feeding() -> tuple[SliceFeed, dict[str, Mapping[str, str]], list[str]]:
    feed = SliceFeed(DeviceSupply(class_mapping()))
    heard: dict[str, Mapping[str, str]] = {}
    nodes: list[str] = []

    def set_offered(node: str, cards: Mapping[str, str]) -> None:
        heard[node] = cards
        nodes.append(node)

    feed.set_offered = set_offered
    return feed, heard, nodes


def test_cards_of_listed_slices_are_passed_on_by_node():
    feed, heard, _ = feeding()
    feed.take(Listed(1, [kept("a", "GPU-0"), kept("b", "GPU-1", "GPU-2", node="n2")]))
    assert heard == {"n1": {"GPU-0": NVIDIA}, "n2": {"GPU-1": NVIDIA, "GPU-2": NVIDIA}}


def test_only_the_nodes_of_a_change_are_passed_on():
    feed, heard, nodes = feeding()
    feed.take(Listed(1, [kept("a", "GPU-0"), kept("b", "GPU-1", node="n2")]))
    nodes.clear()
    feed.take(Changed(2, kept("b", "GPU-1", "GPU-3", node="n2")))
    assert nodes == ["n2"]
    assert heard["n2"] == {"GPU-1": NVIDIA, "GPU-3": NVIDIA}


def test_card_stays_offered_while_a_second_slice_has_it():
    feed, heard, _ = feeding()
    both = [kept("a", "GPU-0"), kept("b", "GPU-0", driver=HAMI)]
    feed.take(Listed(1, both))
    assert heard == {"n1": {"GPU-0": NVIDIA}}, "the first driver by name"
    feed.take(Changed(2, both[0], deleted=True))
    assert heard == {"n1": {"GPU-0": HAMI}}
    feed.take(Changed(3, both[1], deleted=True))
    assert heard == {"n1": {}}


def test_cards_end_when_slices_are_not_served_any_more():
    feed, heard, _ = feeding()
    feed.take(Listed(1, [kept("a", "GPU-0")]))
    feed.take(Interrupted("forbidden"))
    assert heard == {"n1": {"GPU-0": NVIDIA}}
    feed.take(Interrupted("not served", absent=True))
    assert heard == {"n1": {}}


def test_device_without_a_node_is_passed_on_without_one():
    feed, heard, _ = feeding()
    feed.take(Listed(1, [kept("a", "GPU-0", node="")]))
    assert heard == {"": {"GPU-0": NVIDIA}}
