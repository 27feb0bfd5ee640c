"""Settlement clears HAMi's node locks of pods that are gone or on another node."""

from typing import Any

import pytest
from support.harness.card_settlement import card_world, settling_cards

from extender.settlement.hami import stale_node_locks
from ledger.kube.api.cluster_errors import Rejected
from ledger.kube.hami import annotation_keys, node_lock_annotation


async def test_lock_of_a_deleted_pod_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale_node_locks, "LOOK_SECONDS", 0.02)
    async with card_world() as world, settling_cards(world):
        world.add_node("n1", LOCK=node_lock_annotation.write("red", "gone", world.clock()))
        await world.until(lambda: bool(world.nodes.writes))
        (name, changes, _) = world.nodes.writes[0]
        assert (name, changes) == ("n1", {annotation_keys.LOCK: None})


async def test_lock_is_cleared_when_another_lock_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale_node_locks, "LOOK_SECONDS", 0.02)
    async with card_world() as world, settling_cards(world):
        clear = world.nodes.patch_node_annotations

        async def refuse_first(name: str, *change: Any) -> None:
            if name == "n1":
                raise Rejected("denied by a webhook", 422)
            await clear(name, *change)

        monkeypatch.setattr(world.nodes, "patch_node_annotations", refuse_first)
        for name in ("n1", "n2"):
            world.add_node(name, LOCK=node_lock_annotation.write("red", "gone", world.clock()))
        await world.until(lambda: bool(world.nodes.writes))
        assert world.nodes.writes[0][0] == "n2"


async def test_lock_of_an_existing_pod_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale_node_locks, "LOOK_SECONDS", 0.02)
    async with card_world() as world, settling_cards(world):
        world.add_pod("p")
        world.add_node("n1", LOCK=node_lock_annotation.write("red", "p", world.clock()))
        await world.until(lambda: len(world.nodes.pod_reads) > 2)
        assert world.nodes.writes == []


async def test_lock_of_a_pod_on_another_node_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale_node_locks, "LOOK_SECONDS", 0.02)
    async with card_world() as world, settling_cards(world):
        world.add_pod("p", node="n2")
        world.add_node("n1", LOCK=node_lock_annotation.write("red", "p", world.clock()))
        await world.until(lambda: bool(world.nodes.writes))
        assert world.nodes.writes[0][:2] == ("n1", {annotation_keys.LOCK: None})
