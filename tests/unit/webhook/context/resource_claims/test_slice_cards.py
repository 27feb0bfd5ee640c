"""The slice feed: the cards of a node go on to the extender after each change of its slices."""

from support.claims.kept_slices import kept

from ledger.kube.api.cluster_ports import Changed, Interrupted, Listed
from ledger.kube.resource_claims.device_classes import class_mapping
from ledger.kube.resource_claims.device_supply import DeviceSupply
from webhook.context.resource_claims.slice_feed import SliceFeed


def feeding() -> tuple[SliceFeed, dict[str, frozenset[str]], list[str]]:
    feed = SliceFeed(DeviceSupply(class_mapping()))
    heard: dict[str, frozenset[str]] = {}
    nodes: list[str] = []

    def set_offered(node: str, uuids: frozenset[str]) -> None:
        heard[node] = uuids
        nodes.append(node)

    feed.set_offered = set_offered
    return feed, heard, nodes


def test_cards_of_listed_slices_are_passed_on_by_node():
    feed, heard, _ = feeding()
    feed.take(Listed(1, [kept("a", "GPU-0"), kept("b", "GPU-1", "GPU-2", node="n2")]))
    assert heard == {"n1": frozenset({"GPU-0"}), "n2": frozenset({"GPU-1", "GPU-2"})}


def test_only_the_nodes_of_a_change_are_passed_on():
    feed, heard, nodes = feeding()
    feed.take(Listed(1, [kept("a", "GPU-0"), kept("b", "GPU-1", node="n2")]))
    nodes.clear()
    feed.take(Changed(2, kept("b", "GPU-1", "GPU-3", node="n2")))
    assert nodes == ["n2"]
    assert heard["n2"] == frozenset({"GPU-1", "GPU-3"})


def test_card_stays_offered_while_a_second_slice_has_it():
    feed, heard, _ = feeding()
    both = [kept("a", "GPU-0"), kept("b", "GPU-0", driver="hami-core-gpu.project-hami.io")]
    feed.take(Listed(1, both))
    feed.take(Changed(2, both[0], deleted=True))
    assert heard == {"n1": frozenset({"GPU-0"})}
    feed.take(Changed(3, both[1], deleted=True))
    assert heard == {"n1": frozenset()}


def test_cards_end_when_slices_are_not_served_any_more():
    feed, heard, _ = feeding()
    feed.take(Listed(1, [kept("a", "GPU-0")]))
    feed.take(Interrupted("forbidden"))
    assert heard == {"n1": frozenset({"GPU-0"})}
    feed.take(Interrupted("not served", absent=True))
    assert heard == {"n1": frozenset()}


def test_device_without_a_node_is_passed_on_without_one():
    feed, heard, _ = feeding()
    feed.take(Listed(1, [kept("a", "GPU-0", node="")]))
    assert heard == {"": frozenset({"GPU-0"})}
