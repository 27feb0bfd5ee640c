"""The announcement of a node's cards, read back by the ledger's reader, in HAMi's two forms."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from support.fakes.fake_nvml import GIB, FakeNvml, gpu

from ledger.core.model.cards import OWN
from ledger.kube.api.cluster_errors import ClusterUnavailable, VersionConflict
from ledger.kube.api.objects import ApiNode, ObjectMeta
from ledger.kube.hami import annotation_keys, node_announcement
from vgpu_native.agent import node_annotator
from vgpu_native.agent.cards.card_announcement import (
    AnnouncementForm,
    CardOffer,
    annotations,
    answer,
    cards_of,
)
from vgpu_native.agent.cards.card_inventory import CardInventory
from vgpu_native.agent.node_annotator import NodeAnnotator
from vgpu_native.nvml.nvml_port import Gpu, NvmlDriver, Xid

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class ModelNode:
    """One Node, with its annotations."""

    def __init__(self) -> None:
        self.annotations: dict[str, str] = {}
        self.writes: list[dict[str, str | None]] = []
        self.exists, self.version = True, 1
        self.failing: list[Exception] = []

    async def get_node(self, name: str) -> ApiNode | None:
        if self.failing:
            raise self.failing.pop()
        assert name == "n0"
        if not self.exists:
            return None
        meta = ObjectMeta(
            name=name, annotations=dict(self.annotations), resource_version=str(self.version)
        )
        return ApiNode(meta)

    async def patch_node_annotations(
        self, name: str, changes: dict[str, str | None], version: str = ""
    ) -> None:
        assert version == str(self.version)
        self.version += 1
        self.writes.append(changes)
        for key, value in changes.items():
            self.annotations.pop(key, None)
            if value is not None:
                self.annotations[key] = value


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml(gpu(1, numa=1), gpu(0))


@pytest.fixture
def driver(nvml: FakeNvml) -> Iterator[NvmlDriver]:
    driver = NvmlDriver(nvml, seconds=2.0)
    yield driver
    driver.close()


@pytest.fixture
def inventory(driver: NvmlDriver) -> CardInventory:
    return CardInventory(driver, CardOffer(slots=4))


@pytest.mark.parametrize("form", ["json", "colons"])
def test_the_ledger_reads_the_announced_cards(form: AnnouncementForm) -> None:
    cards = cards_of(
        [gpu(1, numa=1), gpu(0, name="Tesla T4, 16G")], CardOffer(slots=4), {"GPU-1": "x"}
    )
    scores = {("GPU-0", "GPU-1"): 60, ("GPU-1", "GPU-0"): 60}
    said = annotations(cards, scores, CardOffer(memory_scaling=150), form)
    announcement = node_announcement.read_announcement(
        {key: text for key, text in said.items() if text is not None}
    )
    assert (announcement.problem, announcement.warning, announcement.keeper) == ("", "", OWN)
    assert announcement.cards == cards
    assert [card.type for card in cards] == ["NVIDIA-Tesla T4 16G", "NVIDIA H200"]
    assert [card.healthy for card in cards] == [True, False]
    assert announcement.scores == scores
    assert said[annotation_keys.MEMORY_SCALING] == "150"
    assert said[annotation_keys.CORES_SCALING] is None


def test_a_card_in_mig_mode_is_not_offered() -> None:
    assert [card.uuid for card in cards_of([gpu(0, cut=True), gpu(1)], CardOffer(), {})] == [
        "GPU-1"
    ]


def test_the_handshake_replies_to_a_request_and_not_to_a_reply() -> None:
    assert answer("Requesting_2026-01-31 11:59:00", NOW) == "Reported 2026-01-31 12:00:00"
    for said in (None, "Reported 2026-01-31 12:00:00", "Deleted_2026"):
        assert answer(said, NOW) is None


async def test_only_changed_annotations_are_written(inventory: CardInventory) -> None:
    node = ModelNode()
    node.annotations = {annotation_keys.CORES_SCALING: "200", "another": "stays"}
    announcer = NodeAnnotator(
        node, "n0", inventory=inventory, offer=CardOffer(slots=4), form="json"
    )
    await inventory.look()
    assert await announcer.announce()
    assert not await announcer.announce()
    [written] = node.writes
    assert set(written) == {
        annotation_keys.KEEPER,
        "hami.io/node-nvidia-register",
        annotation_keys.CORES_SCALING,
    }
    assert node.annotations["another"] == "stays"
    assert annotation_keys.CORES_SCALING not in node.annotations
    node.annotations[annotation_keys.HANDSHAKE] = "Requesting_2026-01-31 11:59:00"
    assert await announcer.announce()
    assert set(node.writes[1]) == {annotation_keys.HANDSHAKE}


async def test_nothing_is_announced_until_the_cards_are_known(
    inventory: CardInventory, nvml: FakeNvml
) -> None:
    node, nvml.failing = ModelNode(), "no driver"
    announcer = NodeAnnotator(node, "n0", inventory=inventory, offer=CardOffer(), form="json")
    await inventory.look()
    assert not await announcer.announce()
    assert "not known" in announcer.trouble
    assert inventory.trouble == "no driver"
    node.exists, nvml.failing = False, ""
    await inventory.look()
    assert not await announcer.announce()
    assert "--node" in announcer.trouble


async def test_an_ill_card_is_announced_at_once(
    inventory: CardInventory, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_annotator, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(node_annotator, "CONFLICT_SECONDS", 0.01)
    node = ModelNode()
    node.failing = [VersionConflict("another writer was first"), ClusterUnavailable("no answer")]
    announcer = NodeAnnotator(
        node, "n0", inventory=inventory, offer=CardOffer(slots=4), form="json"
    )
    tasks = [asyncio.create_task(coroutine) for coroutine in (inventory.run(), announcer.run())]
    try:
        await until(lambda: not announcer.trouble)
        nvml.errors.put(Xid("GPU-1", 79))
        await until(lambda: len(node.writes) == 2)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    announcement = node_announcement.read_announcement(node.annotations)
    assert [card.healthy for card in announcement.cards] == [True, False]


async def test_errors_of_programs_leave_cards_healthy(inventory: CardInventory) -> None:
    await inventory.look()
    before = inventory.changes.version
    for number in (13, 31, 43, 45, 68, 109):
        inventory.record_xid(Xid("GPU-0", number))
    assert (inventory.health.unhealthy, inventory.changes.version) == ({}, before)
    assert inventory.health.xids["GPU-0", 31] == 1


async def test_an_error_of_an_unknown_card_applies_to_all_cards(inventory: CardInventory) -> None:
    await inventory.look()
    inventory.record_xid(Xid("", 48))
    assert set(inventory.health.unhealthy) == {"GPU-0", "GPU-1"}


async def test_a_silent_card_is_ill_until_it_responds_and_a_failed_one_always(
    inventory: CardInventory, nvml: FakeNvml
) -> None:
    await inventory.look()
    nvml.failing_cards = {"GPU-0": "GPU is lost"}
    inventory.record_xid(Xid("GPU-1", 79))
    await inventory.look()
    assert inventory.health.unhealthy == {"GPU-0": "GPU is lost", "GPU-1": "XID 79"}
    nvml.failing_cards = {}
    await inventory.look()
    assert inventory.health.unhealthy == {"GPU-1": "XID 79"}


async def test_card_that_nvml_lists_no_more_stays_unhealthy(
    inventory: CardInventory, nvml: FakeNvml
) -> None:
    await inventory.look()
    nvml.listed = (gpu(0),)
    await inventory.look()
    assert [(card.uuid, card.healthy) for card in inventory.cards] == [
        ("GPU-0", True),
        ("GPU-1", False),
    ]
    nvml.failing = "the driver was removed"
    await inventory.look()
    assert not any(card.healthy for card in inventory.cards)


async def test_the_inventory_does_not_wait_when_the_driver_hangs(nvml: FakeNvml) -> None:
    held = asyncio.Event()
    loop = asyncio.get_running_loop()
    driver = NvmlDriver(nvml, seconds=0.05)
    inventory = CardInventory(driver, CardOffer())
    await inventory.look()
    original = nvml.gpus

    def hang() -> tuple[Gpu, ...]:
        asyncio.run_coroutine_threadsafe(held.wait(), loop).result(10)
        return original()

    nvml.gpus = hang
    async with asyncio.timeout(9.0):
        await inventory.look()
        await inventory.look()
    assert "not answered for long" in inventory.trouble
    assert set(inventory.health.unhealthy) == {"GPU-0", "GPU-1"}
    held.set()
    nvml.gpus = original
    await until(lambda: driver._pending is None or driver._pending.done())
    await inventory.look()
    assert not inventory.health.unhealthy
    driver.close()


def test_cards_have_mebibytes() -> None:
    assert cards_of([gpu(0, memory=80 * GIB + 1)], CardOffer(), {})[0].memory == 80 * 1024


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5.0):
        while not condition():  # noqa: ASYNC110 - the condition sends no event
            await asyncio.sleep(0.005)
