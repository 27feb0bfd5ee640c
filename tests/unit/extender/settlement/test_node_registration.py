"""Announced cards become accounts, and cards that are no longer announced cannot be given."""

import json
from datetime import timedelta
from typing import Any

import pytest
from support.harness.card_settlement import card_text, card_world, settling_cards
from support.harness.settlement import CLUSTER

from extender.settlement import node_registration
from extender.settlement.node_card_health import NodeRules
from extender.settlement.overcommit import CardScaling
from ledger.core.model.accounts import card
from ledger.core.model.cards import HAMI, OWN, Part, Phase, Share
from ledger.core.model.commands import RegisterCards
from ledger.core.model.denials import Denial
from ledger.kube.hami import annotation_keys

GIVEN = (Part("main", Phase.APP, (Share("GPU-0", 1000, 10),)),)


def limits(world, uuid: str) -> dict[str, int]:
    account = world.state.accounts[card(CLUSTER, "n1", uuid)]
    return {key: world.state.limit[line] for key, line in account.lines.items()}


async def test_a_node_that_announces_cards_gets_an_account_for_each():
    async with card_world() as world, settling_cards(world):
        world.add_node("n1")
        await world.settles_nodes("n1")
        assert world.registered("n1").keeper == HAMI
        assert limits(world, "GPU-1") == {"memory": 24_576, "cores": 100, "slots": 10}


async def test_the_older_form_means_the_same():
    text = "GPU-0,10,24576,100,NVIDIA A10,0,true:GPU-1,10,24576,100,NVIDIA A10,0,true:"
    async with card_world() as world, settling_cards(world):
        world.add_node("n1", text=text)
        await world.settles_nodes("n1")
        assert limits(world, "GPU-1") == {"memory": 24_576, "cores": 100, "slots": 10}


async def test_node_without_cards_is_not_registered():
    async with card_world() as world, settling_cards(world):
        world.add_node("plain", text="")
        world.add_node("n1")
        await world.settles_nodes("n1")


async def test_cards_in_another_order_are_not_registered_again():
    async with card_world() as world, settling_cards(world):
        world.add_node("n1")
        await world.settles_nodes("n1")
        position = world.state.position
        world.change_node("n1", text=json.dumps(json.loads(card_text())[::-1]))
        world.add_node("n2")
        await world.settles_nodes("n1", "n2")
        assert world.state.position == position + 1
        assert world.cards.warnings() == []


async def test_changed_card_is_registered_again():
    async with card_world() as world, settling_cards(world):
        world.add_node("n1")
        await world.settles_nodes("n1")
        world.change_node("n1", text=card_text(devmem=40_000))
        await world.until(lambda: limits(world, "GPU-0")["memory"] == 40_000)


async def test_a_node_that_is_deleted_is_gone_and_may_come_back():
    async with card_world() as world, settling_cards(world):
        world.add_node("n1")
        await world.settles_nodes("n1")
        world.server.delete("nodes", "", "n1")
        await world.settles_nodes()
        assert card(CLUSTER, "n1", "GPU-0") not in world.state.accounts
        world.add_node("n1")
        await world.settles_nodes("n1")


async def test_a_node_that_vanished_unwatched_is_removed_by_the_list():
    async with card_world() as world:
        world.add_node("n1")
        async with settling_cards(world):
            await world.settles_nodes("n1")
        world.server.delete("nodes", "", "n1")
        world.add_node("n2")
        async with settling_cards(world):
            await world.settles_nodes("n2")


async def test_node_that_a_stale_replica_registers_late_is_removed_again():
    async with card_world() as world, settling_cards(world):
        world.add_node("n1")
        await world.settles_nodes("n1")
        cards = world.registered("n1").cards
        world.server.delete("nodes", "", "n1")
        world.add_node("n2")
        await world.settles_nodes("n2")
        stale = RegisterCards(f"{CLUSTER}/n1", HAMI, cards, version=1)
        answer = await world.writer.submit(stale)
        assert not isinstance(answer, Denial), answer
        await world.settles_nodes("n2")


async def test_cards_of_a_deleted_node_stay_charged_until_their_pods_are_gone():
    async with card_world() as world, settling_cards(world):
        world.add_node("n1")
        world.add_pod("p", node="n1", parts=GIVEN)
        await world.until(lambda: world.placed("p") is not None)
        world.server.delete("nodes", "", "n1")
        await world.until(lambda: world.registered("n1").gone)
        assert [lost.uuid for lost in world.registered("n1").lost] == ["GPU-0"]
        world.server.delete("pods", "red", "p")
        await world.until(lambda: world.registered("n1") is None)


async def test_an_announcement_that_cannot_be_read_leaves_everything_as_it_was():
    async with card_world() as world, settling_cards(world):
        world.add_node("n1")
        await world.settles_nodes("n1")
        before = world.registered("n1")
        world.change_node("n1", text="[{")
        await world.until(lambda: world.cards.nodes.not_understood == 1)
        world.add_node("n2")
        await world.settles_nodes("n1", "n2")
        assert world.registered("n1") == before
        assert "n1" in world.cards.warnings()[0]
        assert annotation_keys.VENDOR_ANNOTATIONS["nvidia"].register in world.cards.warnings()[0]


async def test_without_their_announcement_cards_stay_and_are_not_healthy():
    async with card_world() as world, settling_cards(world):
        world.add_node("n1")
        await world.settles_nodes("n1")
        world.server.update("nodes", "", "n1", metadata={"annotations": {}})
        await world.until(lambda: world.health("n1") == [False, False])
        world.change_node("n1")
        await world.until(lambda: world.health("n1") == [True, True])


async def test_cards_of_which_the_kubelet_has_none_are_not_healthy():
    async with card_world() as world, settling_cards(world):
        world.add_node("n1")
        await world.settles_nodes("n1")
        world.server.update("nodes", "", "n1", status={"allocatable": {"nvidia.com/gpu": "0"}})
        await world.until(lambda: world.health("n1") == [False, False])
        world.server.update("nodes", "", "n1", status={"allocatable": {"nvidia.com/gpu": "20"}})
        await world.until(lambda: world.health("n1") == [True, True])


async def test_unanswered_handshake_makes_cards_unhealthy_by_time_alone(monkeypatch):
    monkeypatch.setattr(node_registration, "LOOK_SECONDS", 0.02)
    async with card_world() as world, settling_cards(world):
        asked = f"Requesting_{world.clock():%Y-%m-%d %H:%M:%S}"
        world.add_node("n1", HANDSHAKE=asked)
        world.server.update("nodes", "", "n1", status={"allocatable": {}})
        await world.settles_nodes("n1")
        assert world.health("n1") == [True, True]
        world.now += timedelta(seconds=61) // timedelta(microseconds=1)
        await world.until(lambda: world.health("n1") == [False, False])


async def test_a_node_that_is_not_ready_for_a_while_has_no_healthy_cards(monkeypatch):
    monkeypatch.setattr(node_registration, "LOOK_SECONDS", 0.02)
    async with card_world(unready_seconds=0.3) as world:
        async with settling_cards(world):
            world.add_node("n1", ready=False)
            await world.settles_nodes("n1")
            assert world.health("n1") == [True, True]
            await world.until(lambda: world.health("n1") == [False, False])
        async with settling_cards(world):
            world.add_node("n2")
            await world.settles_nodes("n1", "n2")
            assert world.health("n1") == [False, False], "another replica gives no second chance"
            world.change_node("n1")
            await world.until(lambda: world.health("n1") == [True, True])


async def test_only_cards_that_our_agent_keeps_are_scaled():
    rules = NodeRules(scalings=(CardScaling(memory=150, type="a10"),))
    async with card_world(rules=rules) as world, settling_cards(world):
        world.add_node("n1", KEEPER=OWN)
        world.add_node("n2")
        await world.settles_nodes("n1", "n2")
        assert limits(world, "GPU-0")["memory"] == 36_864
        assert {device.memory_scale for device in world.registered("n1").cards} == {150}
        assert {device.memory for device in world.registered("n2").cards} == {24_576}


async def test_link_scores_reach_the_inventory():
    heard: dict[str, Any] = {}
    async with card_world() as world:
        world.cards.nodes.set_scores = heard.__setitem__
        async with settling_cards(world):
            world.add_node("n1", PAIR_SCORES='[{"uuid":"GPU-0","score":{"GPU-1":60}}]')
            await world.settles_nodes("n1")
            assert heard["n1"] == {("GPU-0", "GPU-1"): 60, ("GPU-1", "GPU-0"): 60}
            world.server.delete("nodes", "", "n1")
            await world.settles_nodes()
            assert heard["n1"] == {}


async def test_passive_replica_sends_nothing_and_reads_the_nodes():
    async with card_world() as world:
        world.active = False
        async with settling_cards(world):
            world.add_node("n1")
            await world.until(lambda: "n1" in world.cards.nodes.known)
            assert world.state.nodes == {}
            world.active = True
            await world.settles_nodes("n1")


@pytest.mark.parametrize("text", ["[]", card_text(1)])
async def test_a_card_that_is_announced_no_more_loses_its_account(text):
    async with card_world() as world, settling_cards(world):
        world.add_node("n1")
        await world.settles_nodes("n1")
        world.change_node("n1", text=text)
        await world.until(lambda: card(CLUSTER, "n1", "GPU-1") not in world.state.accounts)
        assert {each.uuid for each in world.registered("n1").cards} == (
            set() if text == "[]" else {"GPU-0"}
        )
