"""The schema of new records, and a next version of gpuledger that writes the same log.

The next version is played by a raised number, by content that it would add, and by an event of its
own with one more field.
"""

import asyncio
import typing
from collections.abc import Iterable, Iterator

import msgspec
import pytest
from support.harness.replicas import running

from ledger.core import snapshot_format
from ledger.core.model import cards, commands, events, traits
from ledger.core.model.denials import Denial, Reason
from ledger.log import record_schema, records
from ledger.log.ledger_port import Accepted
from ledger.log.log_port import PositionTaken, Snapshot
from ledger.log.memory_log import MemoryLog, MemoryStore
from ledger.log.recovery import replay
from ledger.log.writer import writer as writer_module
from ledger.log.writer.writer import Writer

NOW = record_schema.SCHEMA
NEXT = NOW + 1
OLDEST = record_schema.OLDEST_SEALED

FIELDS_OF_4: dict[str, int] = {
    "ClusterRegistered": 3,
    "LimitSet": 9,
    "AccountClosed": 2,
    "Reserved": 11,
    "Raised": 8,
    "Committed": 8,
    "Observed": 11,
    "Released": 7,
    "Described": 4,
    "CardsRegistered": 6,
    "NodeRemoved": 3,
    "Placed": 9,
    "Advanced": 7,
    "Unplaced": 5,
    "Resized": 6,
    "Claimed": 7,
    "Withdrawn": 5,
    "Line": 3,
    "Reach": 2,
    "Requirement": 3,
    "Card": 14,
    "Profile": 5,
    "Part": 3,
    "Share": 7,
}
"""The number of fields of each event and of each struct in one, in schema 4, the oldest sealed."""

VALUES_OF_4: dict[str, str] = {
    "cause": "superseded fenced absent deleted finished unbound operator unreserved late moved seen"
    " elapsed protected",
    "operator": "In NotIn Exists DoesNotExist",
    "stage": "0 1 2",
    "phase": "0 1 2",
    "keeper": "hami gpuledger",
}
"""The values of each field that has a closed set of them, in schema 4."""


def reserve(number: int, owner: str = "") -> commands.Reserve:
    return commands.Reserve(
        "c1/red", f"pods/p{number}", f"uid-{number}", {"nvidia.com/gpu": 1}, owner=owner
    )


def schemas(store: MemoryStore) -> list[int]:
    return [records.schema_of(payload) for payload in store.records]


@pytest.fixture
async def store() -> MemoryStore:
    """Return a log that this version has begun."""
    begun = MemoryStore()
    async with running(begun) as writer:
        for number in range(2):
            assert isinstance(await writer.submit(reserve(number)), Accepted)
    return begun


@pytest.mark.parametrize(
    ("last", "sealed"), [(0, NOW), (1, OLDEST), (3, OLDEST), (OLDEST, OLDEST), (NOW, NOW)]
)
def test_a_log_keeps_its_schema_and_an_empty_one_gets_the_newest(last: int, sealed: int) -> None:
    assert record_schema.to_seal(last) == sealed


def test_the_next_version_seals_as_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_schema, "SCHEMA", NEXT)
    sealed = [record_schema.to_seal(last) for last in (0, 3, NOW, NEXT)]
    assert sealed == [NEXT, OLDEST, NOW, NEXT]


async def test_an_upgraded_writer_writes_what_the_older_one_reads(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as version:
        version.setattr(record_schema, "SCHEMA", NEXT)
        async with running(store) as writer:
            assert isinstance(await writer.submit(reserve(7)), Accepted)
    assert schemas(store) == [NOW, NOW, NOW]
    async with running(store) as older:
        assert isinstance(await older.submit(reserve(8)), Accepted)


async def test_a_writer_that_starts_from_a_snapshot_keeps_the_schema(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryLog(store)
    await log.open(create=False)
    state = await replay.open_state(log)
    await log.save_snapshot(Snapshot(state.position, snapshot_format.encode(state)))
    monkeypatch.setattr(record_schema, "SCHEMA", NEXT)
    assert (await replay.open_state(log)).schema == NOW
    assert (await replay.state_at(log, state.position)).schema == NOW
    await log.close()


async def test_a_raised_log_stops_the_older_version(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as version:
        version.setattr(record_schema, "SCHEMA", NEXT)
        await raised(store)
        await raised(store)
        async with running(store) as writer:
            assert isinstance(await writer.submit(reserve(7)), Accepted)
    assert schemas(store) == [NOW, NOW, NEXT, NEXT], "raised once, and kept"
    log = MemoryLog(store)
    await log.open(create=False)
    with pytest.raises(records.NewerSchema, match=f"schema {NEXT}.*reads {NOW}: upgrade"):
        await replay.open_state(log)


async def raised(store: MemoryStore) -> None:
    log = MemoryLog(store)
    await log.open(create=False)
    writer = Writer(log, name="command", now=lambda: 1_000_000, nonces=lambda: "nonce")
    await writer.open()
    await writer.raise_schema()
    await log.close()


async def test_a_raise_that_another_writer_overtakes_is_repeated(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_schema, "SCHEMA", NEXT)
    log = MemoryLog(store)
    await log.open(create=False)
    writer = Writer(log, name="command", now=lambda: 1_000_000, nonces=lambda: "nonce")
    await writer.open()
    async with running(store) as other:
        assert isinstance(await other.submit(reserve(7)), Accepted)
        await writer.raise_schema()
        async with asyncio.timeout(30):
            while other.state.schema != NEXT:  # noqa: ASYNC110 - the state sends no signal
                await asyncio.sleep(0.005)
    assert schemas(store) == [NOW, NOW, NOW, NEXT]
    await log.close()


class OvertakenLog(MemoryLog):
    """A log in which another writer appends before each append of this client."""

    def __init__(self, store: MemoryStore, times: int) -> None:
        super().__init__(store)
        self._store_of_both, self.times = store, times

    async def append(self, payload: bytes, expected: int) -> int:
        """Append another writer's record first."""
        if self.times:
            self.times -= 1
            other = MemoryLog(self._store_of_both)
            await other.open(create=False)
            state = await replay.open_state(other)
            _, before, _ = records.next_record(
                state, state.time, "other", f"nonce-{self.times}", group=0, items=[]
            )
            await other.append(before, state.position)
        return await super().append(payload, expected)


@pytest.mark.parametrize(("overtaken", "is_raised"), [(2, True), (3, False)])
async def test_a_raise_that_is_always_overtaken_ends(
    overtaken: int, is_raised: bool, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_schema, "SCHEMA", NEXT)
    monkeypatch.setattr(writer_module, "RAISE_ATTEMPTS_MAX", 3)
    log = OvertakenLog(store, overtaken)
    await log.open(create=False)
    writer = Writer(log, name="command", now=lambda: 1_000_000, nonces=lambda: "nonce")
    await writer.open()
    if is_raised:
        await writer.raise_schema()
        assert schemas(store)[-1] == NEXT
    else:
        with pytest.raises(PositionTaken, match=f"3 attempts, so the schema stays {NOW}"):
            await writer.raise_schema()
        assert set(schemas(store)) == {NOW}
    await log.close()


async def test_newer_content_is_refused_until_the_schema_is_raised(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_schema, "SCHEMA", NEXT)
    monkeypatch.setitem(record_schema.SINCE, "Reserved.owner", NEXT)
    async with running(store) as writer:
        answer = await writer.submit(reserve(7, owner="rs-1"))
        assert isinstance(answer, Denial)
        assert answer.reason is Reason.INTERNAL_ERROR
        assert isinstance(await writer.submit(reserve(8)), Accepted)
    assert len(store.records) == 3
    await raised(store)
    async with running(store) as writer:
        assert isinstance(await writer.submit(reserve(7, owner="rs-1")), Accepted)


class NextReserved(msgspec.Struct, frozen=True, array_like=True, tag="Reserved", tag_field="type"):
    """`Reserved` as a next version may have it, with a field at its end."""

    namespace: str
    key: str
    uid: str
    base: int
    demand: dict[str, int]
    stamp: str = ""
    owner: str = ""
    actor: str = ""
    root: str = ""
    traits: tuple[str, ...] = ()
    forced: bool = False
    region: str = ""


def test_a_field_at_the_end_is_ignored_by_the_older_version() -> None:
    event = NextReserved("c1/red", "pods/a", "u", 0, {"nvidia.com/gpu": 1})
    item: typing.Any = msgspec.msgpack.decode(
        msgspec.msgpack.encode([event, [0, 1, 1]]), type=records.Item
    )
    assert item.event == events.Reserved("c1/red", "pods/a", "u", 0, {"nvidia.com/gpu": 1})


def structs_of(annotation: object) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that a field of this type may hold, and those in them."""
    for part in typing.get_args(annotation):
        yield from structs_of(part)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
        for held in typing.get_type_hints(annotation).values():
            yield from structs_of(held)


RECORDED = sorted(set(structs_of(events.AnyEvent)), key=lambda kind: kind.__name__)
"""The events and the structs in them."""


@pytest.mark.parametrize("kind", RECORDED)
def test_content_that_schema_4_lacks_has_a_default_and_a_schema(kind: type[msgspec.Struct]) -> None:
    known = FIELDS_OF_4.get(kind.__name__)
    if known is None:
        assert record_schema.SINCE[kind.__name__] > record_schema.OLDEST_SEALED
        return
    fields = msgspec.structs.fields(kind)
    assert len(fields) >= known, "a field was removed, so older logs are unreadable"
    for field in fields[known:]:
        assert not field.required, field.name
        brought = record_schema.SINCE[f"{kind.__name__}.{field.name}"]
        assert record_schema.OLDEST_SEALED < brought <= record_schema.SCHEMA


VALUES_NOW: dict[str, Iterable[object]] = {
    "cause": events.Cause,
    "operator": traits.OPERATORS,
    "stage": cards.Stage,
    "phase": cards.Phase,
    "keeper": (cards.HAMI, cards.OWN),
}


@pytest.mark.parametrize("field", VALUES_NOW)
def test_a_value_that_schema_4_lacks_has_a_schema(field: str) -> None:
    values = {str(value) for value in VALUES_NOW[field]}
    known = set(VALUES_OF_4[field].split())
    assert known <= values, "a value was removed, so older logs are unreadable"
    holding = [kind.__name__ for kind in RECORDED if field in kind.__struct_fields__]
    for value in values - known:
        for kind in holding:
            brought = record_schema.SINCE[f"{kind}.{field}={value}"]
            assert record_schema.OLDEST_SEALED < brought <= record_schema.SCHEMA


CARD = cards.Card("gpu-1", 0, "A100", 40960, 100, 10, mode="mig")
NEWER = [
    ("Released", events.Released("c1/red", "pods/a", "u", 0, "absent")),
    ("Released.version", events.Released("c1/red", "pods/a", "u", 0, "absent", 3)),
    ("Released.cause=absent", events.Released("c1/red", "pods/a", "u", 0, "absent")),
    ("Advanced.stage=2", events.Advanced("c1/red", "pods/a", "u", cards.Stage(2), True, {})),
    ("Card.mode", events.CardsRegistered("c1/n", "hami", (CARD,), ((1, 2, 3),))),
    ("Card.mode=mig", events.CardsRegistered("c1/n", "hami", (CARD,), ((1, 2, 3),))),
    (
        "Requirement.operator=Exists",
        events.LimitSet(
            "universe/u", (), (), reach=traits.Reach((traits.Requirement("a", "Exists"),))
        ),
    ),
]


@pytest.mark.parametrize(("name", "event"), NEWER, ids=[name for name, _ in NEWER])
def test_newer_content_is_found_wherever_it_lies(
    name: str, event: events.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(record_schema.SINCE, name, NEXT)
    record_schema.must_fit([event], NEXT)
    with pytest.raises(record_schema.NewerContent, match=f"{name} needs schema {NEXT}"):
        record_schema.must_fit([event], NOW)
    monkeypatch.delitem(record_schema.SINCE, name)
    monkeypatch.setitem(record_schema.SINCE, f"{name}2", NEXT)
    record_schema.must_fit([event], NOW)
