"""Item bodies are compressed, bounded, and damage is noticed."""

import pytest

from ledger.log.records import RECORD_BYTES_MAX
from projections.store.item_bodies import deflate, inflate, items_hash


@pytest.mark.parametrize("items", [b"", b"\x90", bytes(RECORD_BYTES_MAX)])
def test_inflate_returns_the_items(items: bytes) -> None:
    assert inflate(deflate(items)) == items


@pytest.mark.parametrize("damage", ["cut", "longer", "changed", "larger than a record"])
def test_inflate_refuses_a_damaged_body(damage: str) -> None:
    body = deflate(b"the events of a record" * 9)
    damaged = {
        "cut": body[:-3],
        "longer": body + b"\0",
        "changed": b"\xff" + body[1:],
        "larger than a record": deflate(bytes(64 * RECORD_BYTES_MAX)),
    }[damage]
    for function in (inflate, items_hash):
        with pytest.raises(ValueError, match="damaged"):
            function(damaged)
