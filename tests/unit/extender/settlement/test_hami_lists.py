"""Pods that HAMi placed hold their cards as long as they exist."""

from datetime import UTC, datetime, timedelta

from support.harness.card_settlement import card_world, settling_cards
from support.harness.settlement import CLUSTER

from ledger.core.model.accounts import card
from ledger.core.model.cards import Part, Phase, Share
from ledger.kube.hami import annotation_keys

ON_0 = (Part("main", Phase.APP, (Share("GPU-0", 1000, 10),)),)


def used(one, uuid: str = "GPU-0") -> tuple[int, ...]:
    account = one.state.accounts[card(CLUSTER, "n1", uuid)]
    return tuple(one.state.used[line] for line in account.lines.values())


async def ready(one) -> None:
    one.add_node("n1")
    await one.settles_nodes("n1")
    await one.synced()


async def test_a_list_without_a_node_counts_where_the_pod_is_bound():
    async with card_world() as one, settling_cards(one):
        await ready(one)
        one.add_pod("p", node="n1")
        given = one.given(ON_0, "n1")
        del given[annotation_keys.NODE]
        one.server.update("pods", "red", "p", metadata={"annotations": given})
        await one.until(lambda: one.placed("p") is not None)
        assert used(one) == (1000, 10, 1)


async def test_deleted_pod_keeps_its_cards_until_its_grace_period_has_passed():
    async with card_world() as one, settling_cards(one):
        await ready(one)
        one.add_pod("p", node="n1", parts=ON_0)
        await one.until(lambda: one.placed("p") is not None)
        instant = datetime.fromtimestamp(one.now / 1e6, UTC).isoformat()
        terminating = {"deletionTimestamp": instant, "deletionGracePeriodSeconds": 30}
        one.server.update("pods", "red", "p", metadata=terminating)
        one.add_pod("q", node="n1", parts=ON_0)
        await one.until(lambda: one.placed("q") is not None)
        assert used(one) == (2000, 20, 2)
        one.now += timedelta(seconds=31) // timedelta(microseconds=1)
        await one.until(lambda: one.placed("p") is None)
        assert used(one) == (1000, 10, 1)
