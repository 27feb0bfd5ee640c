"""Records: sealed, chained, and of a schema that is known."""

import hashlib

import msgspec
import pytest
from support.builders.decide_and_fold import record
from support.generators.random_commands import random_commands

from ledger.core.model.state import State
from ledger.log import record_schema, records
from ledger.log.log_port import Lost
from ledger.log.memory_log import MemoryLog, MemoryStore
from ledger.log.recovery.scrub import scrub


def history(count: int = 8) -> list[bytes]:
    state, script = State(), random_commands(7, 120)
    made = (record(state, script[at : at + 5], time=at) for at in range(0, len(script), 5))
    return [payload for payload in made if payload is not None][:count]


def fold_all(payloads: list[bytes]) -> State:
    state = State()
    for position, payload in enumerate(payloads, 1):
        records.fold(state, position, payload)
    return state


async def scrub_all(payloads: list[bytes]) -> bytes:
    store = MemoryStore(exists=True)
    store.records = payloads
    return await scrub(MemoryLog(store), len(payloads))


async def test_an_untouched_log_folds_and_scrubs_to_the_same_hash() -> None:
    payloads = history()
    assert await scrub_all(payloads) == fold_all(payloads).hash


@pytest.mark.parametrize("position", [1, 4, 8])
async def test_every_flipped_byte_of_a_record_is_found_at_its_position(position: int) -> None:
    honest = history()
    for index in range(0, len(honest[position - 1]), 7):
        forged = bytearray(honest[position - 1])
        forged[index] ^= 1
        payloads = [*honest[: position - 1], bytes(forged), *honest[position:]]
        with pytest.raises((Lost, records.NewerSchema), match=rf"position {position}:|schema"):
            fold_all(payloads)
        with pytest.raises((Lost, records.NewerSchema), match=rf"position {position}:|schema"):
            await scrub_all(payloads)


async def test_a_record_that_was_resealed_after_a_change_breaks_the_chain() -> None:
    payloads = history()
    changed, _ = records.decode(payloads[3])
    payloads[3], _ = records.encode(msgspec.structs.replace(changed, writer="forger"))
    with pytest.raises(Lost, match="position 5: the record does not follow"):
        fold_all(payloads)
    with pytest.raises(Lost, match="position 5: the record does not follow"):
        await scrub_all(payloads)


@pytest.mark.parametrize("position", [1, 3, 7])
async def test_a_removed_record_is_found_at_its_position(position: int) -> None:
    payloads = history()
    del payloads[position - 1]
    with pytest.raises(Lost, match=f"position {position}: "):
        fold_all(payloads)
    with pytest.raises(Lost, match=f"position {position}: "):
        await scrub_all(payloads)


async def test_two_records_in_the_wrong_order_are_found() -> None:
    payloads = history()
    payloads[2], payloads[3] = payloads[3], payloads[2]
    with pytest.raises(Lost, match="position 3: "):
        await scrub_all(payloads)


def test_a_forged_balance_is_found_even_if_the_record_is_sealed_again() -> None:
    payloads = history()
    for index, payload in enumerate(payloads):
        decoded, _ = records.decode(payload)
        item = next((item for item in decoded.items if item.postings), None)
        if item is None:
            continue
        item.postings[2] += 1
        payloads[index], _ = records.encode(decoded)
        with pytest.raises(Lost, match=f"position {index + 1}: balances after"):
            fold_all(payloads)
        return
    pytest.fail("no record of the history has postings")


def test_newer_schema_of_any_shape_is_refused() -> None:
    newer = msgspec.msgpack.encode([record_schema.SCHEMA + 1, {"any": "shape"}])
    with pytest.raises(records.NewerSchema, match="upgrade"):
        records.decode(newer)


def test_an_event_that_is_not_known_was_written_by_a_newer_version() -> None:
    body = msgspec.msgpack.decode(msgspec.msgpack.decode(history()[0])[2])
    body[6] = [[["Renamed", "a", "b"], []]]
    with pytest.raises(records.NewerSchema, match=r"position 1: .*Renamed.*upgrade"):
        records.decode(sealed(msgspec.msgpack.encode(body)))


def test_sealed_body_without_a_record_is_refused_as_damaged() -> None:
    for body in (b"", msgspec.msgpack.encode(42), msgspec.msgpack.encode(["a", "b"])):
        with pytest.raises(Lost, match="not an intact record"):
            records.decode(sealed(body))


def sealed(body: bytes) -> bytes:
    """Return a body with its hash, as a record is stored."""
    digest = hashlib.sha256(bytes((record_schema.SCHEMA,)) + body).digest()
    return msgspec.msgpack.encode((record_schema.SCHEMA, digest, body))


@pytest.mark.parametrize("junk", [b"", b"\x00", b"\x93\x01", b"not a record", b"\x90"])
def test_invalid_record_is_refused(junk: bytes) -> None:
    with pytest.raises(Lost, match="not an intact record"):
        records.decode(junk)


@pytest.mark.parametrize("count", [0, 1, 300])
def test_a_record_of_encoded_items_has_the_same_bytes(count: int) -> None:
    made, _ = records.decode(max(history(), key=len))
    items = (made.items * count)[:count]
    repeated = msgspec.structs.replace(made, items=items)
    encoded = [records.encode_item(item) for item in items]
    assert records.encode(repeated, encoded=encoded) == records.encode(repeated)
