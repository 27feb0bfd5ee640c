"""A log of schema 4 goes on with this version, and records devices once its schema is raised."""

import pytest
from support.harness.replicas import running

from ledger.core import snapshot_format
from ledger.core.model.commands import AnyCommand, Observe, Reserve, SetLimits
from ledger.core.model.devices import Device
from ledger.core.model.events import AnyEvent, Committed
from ledger.core.model.state import Object, State
from ledger.log import record_schema, records
from ledger.log.ledger_port import Accepted
from ledger.log.memory_log import MemoryLog, MemoryStore
from ledger.log.recovery import replay
from ledger.log.writer.writer import Writer

TEAM, CLAIM = "c1/team", "resourceclaims.resource.k8s.io/shared"
MEMORY = "nvidia.com/gpumem"
DEVICE = Device("shared", "gpu", "gpu.example.com", "n1", "gpu-0", "s1", memory=10)
LIMIT = SetLimits("quota/c1/team/gpus", (TEAM,), {f"limits.{MEMORY}": 100})
CREATED = Reserve(TEAM, CLAIM, "u", {MEMORY: 40})
SETTLED = Observe(TEAM, CLAIM, "u", 2, {MEMORY: 10}, devices=(DEVICE,))


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """Return a log that a version with schema 4 has begun."""
    begun = MemoryStore()
    with monkeypatch.context() as version:
        version.setattr(record_schema, "SCHEMA", 4)
        await submit(begun, LIMIT, CREATED)
    return begun


async def submit(store: MemoryStore, *commands: AnyCommand) -> None:
    async with running(store) as writer:
        for command in commands:
            assert isinstance(await writer.submit(command), Accepted)


async def folded(store: MemoryStore) -> State:
    log = MemoryLog(store)
    await log.open(create=False)
    return await replay.open_state(log)


def stored(state: State) -> Object:
    entry = state.entry(TEAM, CLAIM)
    assert entry is not None
    assert entry.committed is not None
    return entry.committed


def last_event(store: MemoryStore) -> AnyEvent:
    record, _ = records.decode(store.records[-1])
    return record.items[-1].event


async def test_a_log_of_schema_4_keeps_the_bound_of_an_allocation(store: MemoryStore) -> None:
    await submit(store, SETTLED)
    assert [records.schema_of(payload) for payload in store.records] == [4, 4, 4]
    assert last_event(store) == Committed(TEAM, CLAIM, "u", 2, 0)
    state = await folded(store)
    assert (stored(state).demand, stored(state).devices) == ({MEMORY: 40}, ())
    assert snapshot_format.schema_of(snapshot_format.encode(state)) == 4


async def test_the_next_observation_settles_once_the_schema_is_raised(store: MemoryStore) -> None:
    await submit(store, SETTLED)
    log = MemoryLog(store)
    await log.open(create=False)
    writer = Writer(log, name="command", now=lambda: 1_000_000, nonces=lambda: "nonce")
    await writer.open()
    await writer.raise_schema()
    await log.close()
    await submit(store, SETTLED)
    state = await folded(store)
    settled = stored(state)
    assert (settled.demand, settled.devices, settled.bound) == (
        {MEMORY: 10},
        (DEVICE,),
        {MEMORY: 40},
    )
    assert state.used == [10]
    assert snapshot_format.schema_of(snapshot_format.encode(state)) == 5


async def test_a_new_log_records_devices_at_once() -> None:
    new = MemoryStore()
    await submit(new, LIMIT, CREATED, SETTLED)
    assert stored(await folded(new)).devices == (DEVICE,)
