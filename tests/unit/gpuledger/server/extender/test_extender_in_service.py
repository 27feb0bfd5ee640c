"""The extender of a service gives no card before the slices are listed, or cannot be."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from support.builders.decide_and_fold import record
from support.harness.waiting import until

from gpuledger.server import extender_in_service
from gpuledger.server.extender_in_service import ServiceExtender
from ledger.core.model.cards import OWN, Card
from ledger.core.model.commands import RegisterCards
from ledger.core.model.state import State
from ledger.log import records
from ledger.runtime.metrics import Telemetry
from ledger.runtime.settings.settings import Settings


class Replica:
    """A replica whose log is open, with one node."""

    def __init__(self) -> None:
        self.state = State()
        self.opened = asyncio.Event()
        self.opened.set()
        self.hints = SimpleNamespace(broadcast=lambda _: None, on_hint=lambda _: None)
        self.callbacks: list[Any] = []

    def subscribe(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def register(self, name: str) -> None:
        """Apply a record with a node of one card."""
        cards = (Card(f"GPU-{name}", 0, "T4", 16_000, 100, 4),)
        payload = record(self.state, [RegisterCards(f"local/{name}", OWN, cards)])
        assert payload is not None
        for callback in self.callbacks:
            callback(records.decode(payload)[0])


def made(replica: Replica) -> ServiceExtender:
    given: Any = replica
    return ServiceExtender(
        Settings(),
        replica=given,
        ledger=given,
        cluster=None,
        rules=lambda: None,  # type: ignore[arg-type,return-value]  # nothing is decided
        telemetry=Telemetry(),
    )


async def test_cards_are_loaded_once_the_slices_are_listed() -> None:
    replica = Replica()
    service = made(replica)
    listed = service.slices_listed = asyncio.Event()
    running = asyncio.create_task(service.run())
    await asyncio.sleep(0)
    replica.register("n1")
    assert not service.check()[0]
    service.inventory.set_offered("n1", frozenset({"GPU-n1"}))
    listed.set()
    await until(lambda: service.inventory.loaded)
    assert service.inventory.arrays.offered[service.inventory.rows["n1"], 0]
    replica.register("n2")
    assert set(service.inventory.rows) == {"n1", "n2"}
    running.cancel()


async def test_cards_are_loaded_without_slices_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extender_in_service, "SLICES_SECONDS", 0.01)
    replica = Replica()
    service = made(replica)
    service.slices_listed = asyncio.Event()
    running = asyncio.create_task(service.run())
    await until(lambda: service.inventory.loaded)
    running.cancel()
