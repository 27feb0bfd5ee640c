"""The share of the log that one namespace may append."""

import msgspec
import pytest
from support.harness.replicas import QUICK, running

from ledger.core.model import commands, events
from ledger.core.model.denials import Denial, Reason
from ledger.log.ledger_port import Accepted
from ledger.log.memory_log import MemoryStore
from ledger.log.records import Item, encode_item
from ledger.log.writer.log_capacity import LogCapacity

GPU = {"nvidia.com/gpu": 1}
BURST, RATE = 10_000, 100


def item(namespace: str, size: int) -> Item:
    """Return an item of so many bytes about a namespace."""
    bare = encode_item(Item(events.Released(namespace, "", "u" * 300, 0, "absent"), []))
    return Item(events.Released(namespace, "", "u" * (300 + size - len(bare)), 0, "absent"), [])


def test_namespace_may_append_its_burst_at_once_and_then_its_rate() -> None:
    shares = LogCapacity(BURST, RATE)
    shares.take_shares([item("c/red", BURST)], 0.0)
    assert shares.wait("c/red", 0.0) == 0.0
    shares.take_shares([item("c/red", 1_000)], 0.0)
    assert shares.wait("c/red", 0.0) == pytest.approx(10.0)
    assert shares.wait("c/red", 10.0) == 0.0
    shares.take_shares([item("c/red", 500)], 10.0)
    assert shares.wait("c/red", 10.0) == pytest.approx(5.0)


def test_a_share_does_not_grow_beyond_the_burst() -> None:
    shares = LogCapacity(BURST, RATE)
    shares.take_shares([item("c/red", 1_000)], 0.0)
    shares.take_shares([item("c/red", BURST + 1_000)], 1e9)
    assert shares.wait("c/red", 1e9) == pytest.approx(10.0)


def test_one_namespace_does_not_use_up_the_share_of_another() -> None:
    shares = LogCapacity(BURST, RATE)
    shares.take_shares([item("c/red", 2 * BURST), item("c/blue", 500)], 0.0)
    assert shares.wait("c/red", 0.0) > 0
    assert shares.wait("c/blue", 0.0) == 0.0


def test_what_is_about_no_namespace_takes_nothing() -> None:
    shares = LogCapacity(BURST, RATE)
    shares.take_shares([Item(events.AccountClosed("quota/c/red/main"), [])], 0.0)
    assert shares.namespaces == 0


def test_many_namespaces_do_not_make_one_that_is_over_its_share_forgotten() -> None:
    shares = LogCapacity(BURST, RATE, namespaces_max=100)
    shares.take_shares([item("c/red", BURST + 5_000)], 0.0)
    for number in range(10_000):
        shares.take_shares([item(f"c/n{number}", 500)], 0.0)
        assert shares.namespaces <= 100
    assert shares.wait("c/red", 0.0) == pytest.approx(50.0)


def reserve(number: int, namespace: str = "c1/red") -> commands.Reserve:
    return commands.Reserve(namespace, f"pods/p{number}", f"uid-{number}", GPU, owner="o" * 1_000)


SMALL = msgspec.structs.replace(QUICK, namespace_bytes_burst=20_000, namespace_bytes_rate=1)


async def test_a_namespace_that_floods_the_log_is_refused_and_others_are_not() -> None:
    store = MemoryStore()
    async with running(store, settings=SMALL) as writer:
        for number in range(100):
            flood = await writer.submit(reserve(number))
        assert isinstance(flood, Denial)
        assert (flood.reason, flood.transient) == (Reason.LOG_SHARE_EXCEEDED, True)
        assert "c1/red" in flood.message
        assert "log_namespace_rate" in flood.remedy
        assert isinstance(await writer.submit(reserve(0, "c1/blue")), Accepted)
        dry = await writer.submit(reserve(100), dry_run=True)
        assert isinstance(dry, Denial)
        assert dry.reason is Reason.LOG_SHARE_EXCEEDED
    assert store.size < 30_000


async def test_over_its_share_what_exists_and_what_ends_is_still_recorded() -> None:
    store = MemoryStore()
    async with running(store, settings=SMALL) as writer:
        for number in range(100):
            await writer.submit(reserve(number))
        assert isinstance(await writer.submit(reserve(100)), Denial)
        seen = commands.Observe("c1/red", "pods/p0", "uid-0", 1, GPU)
        assert isinstance(await writer.submit(seen), Accepted)
        ended = commands.End("c1/red", "pods/p0", "uid-0", 2, "deleted")
        assert isinstance(await writer.submit(ended), Accepted)
        assert isinstance(
            await writer.submit(commands.Refute("c1/red", "pods/p1", "uid-1", 0)), Accepted
        )
        # A command without events takes no share.
        assert isinstance(await writer.submit(reserve(2)), Accepted)


async def test_what_another_replica_wrote_counts_for_the_share() -> None:
    store = MemoryStore()
    async with running(store) as other, running(store, settings=SMALL) as writer:
        for number in range(30):
            await other.submit(reserve(number))
        denial = await writer.submit(reserve(100))
        assert isinstance(denial, Denial)
        assert denial.reason is Reason.LOG_SHARE_EXCEEDED
