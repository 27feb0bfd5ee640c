"""Pods that HAMi placed hold their cards as long as they exist."""

from datetime import UTC, datetime, timedelta

from support.harness.card_settlement import card_world, settling_cards
from support.harness.settlement import CLUSTER

from ledger.core.model.accounts import card
from ledger.core.model.cards import Part, Phase, Share
from ledger.kube.hami import annotation_keys

ON_0 = (Part("main", Phase.APP, (Share("GPU-0", 1000, 10),)),)


def used(world, uuid: str = "GPU-0") -> tuple[int, ...]:
    account = world.state.accounts[card(CLUSTER, "n1", uuid)]
    return tuple(world.state.used[line] for line in account.lines.values())


async def ready(world) -> None:
    world.add_node("n1")
    await world.settles_nodes("n1")
    await world.synced()


async def test_a_list_without_a_node_counts_where_the_pod_is_bound():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        world.add_pod("p", node="n1")
        given = world.given(ON_0, "n1")
        del given[annotation_keys.NODE]
        world.server.update("pods", "red", "p", metadata={"annotations": given})
        await world.until(lambda: world.placed("p") is not None)
        assert used(world) == (1000, 10, 1)


async def test_deleted_pod_keeps_its_cards_until_its_grace_period_has_passed():
    async with card_world() as world, settling_cards(world):
        await ready(world)
        world.add_pod("p", node="n1", parts=ON_0)
        await world.until(lambda: world.placed("p") is not None)
        instant = datetime.fromtimestamp(world.now / 1e6, UTC).isoformat()
        terminating = {"deletionTimestamp": instant, "deletionGracePeriodSeconds": 30}
        world.server.update("pods", "red", "p", metadata=terminating)
        world.add_pod("q", node="n1", parts=ON_0)
        await world.until(lambda: world.placed("q") is not None)
        assert used(world) == (2000, 20, 2)
        world.now += timedelta(seconds=31) // timedelta(microseconds=1)
        await world.until(lambda: world.placed("p") is None)
        assert used(world) == (1000, 10, 1)
