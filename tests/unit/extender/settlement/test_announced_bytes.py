"""One node may add some bytes to the log at once, and a steady rate after that."""

from functools import partial

from support.harness.card_settlement import card_text, card_world, settling_cards

from extender.settlement import node_registration
from ledger.log.memory_log import MemoryStore

CHANGES = 24
PROFILES = [
    {"name": "p" * 200 + str(number), "memoryMB": number, "sliceCount": 1} for number in range(60)
]


def forged(number: int) -> str:
    """Return an announcement of about 200 kB that differs from all others."""
    return card_text(12, type=f"T{number}", migProfiles=PROFILES)


def taken(world, model: str) -> bool:
    return world.registered("n1").cards[0].type == model


def _taken_or_warned(world, model: str) -> bool:
    return taken(world, model) or bool(world.cards.warnings())


async def test_a_node_that_announces_something_else_all_the_time_is_held_back():
    store = MemoryStore()
    async with card_world(store=store) as world, settling_cards(world):
        world.add_node("n1")
        world.add_node("n2")
        await world.settles_nodes("n1", "n2")
        for number in range(CHANGES):
            world.change_node("n1", text=forged(number))
            await world.until(partial(_taken_or_warned, world, f"T{number}"))
        assert 200_000 < store.size < node_registration.ANNOUNCED_BURST_BYTES + 300_000
        world.change_node("n2", text=card_text(devmem=40_000))
        await world.until(lambda: world.registered("n2").cards[0].memory == 40_000)
        assert "node n1: its announcements change too often" in world.cards.warnings()[0]


async def test_held_node_is_registered_with_its_latest_cards_when_allowed(monkeypatch):
    monkeypatch.setattr(node_registration, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(node_registration, "ANNOUNCED_BYTES_PER_SECOND", 1_000_000)
    monkeypatch.setattr(node_registration, "ANNOUNCED_BURST_BYTES", 100_000)
    async with card_world() as world, settling_cards(world):
        world.add_node("n1", text=forged(0))
        await world.settles_nodes("n1")
        for number in (1, 2, 3):
            world.change_node("n1", text=forged(number))
        await world.until(lambda: taken(world, "T3"))
        await world.until(lambda: not world.cards.warnings())
