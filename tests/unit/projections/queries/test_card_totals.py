"""Card totals: each card is counted once, by its use."""

from typing import Any

import msgspec
import pytest

from projections.queries.card_usage import CardUsage
from projections.queries.totals.card_totals import totals_of

FREE = CardUsage(
    cluster="c1",
    node="n1",
    uuid="GPU-a",
    index=0,
    type="A100",
    health=True,
    memory=1_000,
    cores=100,
    slots=10,
    used_memory=0,
    used_cores=0,
    used_slots=0,
    free_memory=1_000,
    free_cores=100,
    free_slots=10,
    vendor="nvidia",
    mode="",
    numa=0,
    cordoned=False,
    memory_scale=100,
    cores_scale=100,
    keeper="gpuledger",
    state="announced",
)


def used(memory: int, cores: int, slots: int, **more: Any) -> CardUsage:
    """Return the card with this use."""
    return msgspec.structs.replace(
        FREE,
        used_memory=memory,
        used_cores=cores,
        used_slots=slots,
        free_memory=1_000 - memory,
        free_cores=100 - cores,
        free_slots=10 - slots,
        **more,
    )


@pytest.mark.parametrize(
    ("card", "kind", "fragmented"),
    [
        (FREE, "free", 0),
        (used(1_000, 100, 1), "whole", 0),
        (used(1_000, 0, 1), "whole", 0),
        (used(400, 100, 1), "whole", 0),
        (used(400, 50, 1), "shared", 0),
        (used(1_000, 90, 2), "shared", 0),
        (used(400, 100, 2), "shared", 1),
        (used(400, 20, 10), "shared", 1),
        (used(0, 0, 0, health=False), "out", 0),
        (used(400, 50, 1, cordoned=True), "out", 0),
        (used(400, 50, 1, state="lost"), "out", 0),
    ],
)
def test_a_card_is_of_one_kind(card: CardUsage, kind: str, fragmented: int) -> None:
    totals = totals_of([card], is_complete=True)
    counted = {name: getattr(totals, name) for name in ("free", "shared", "whole", "out")}
    assert counted == dict.fromkeys(counted, 0) | {kind: 1}
    assert totals.fragmented == fragmented
    assert totals.cards == 1


def test_free_memory_is_what_a_container_can_get() -> None:
    several = [FREE, used(400, 50, 1), used(300, 100, 2), used(400, 50, 1, state="lost")]
    totals = totals_of(several, is_complete=False)
    assert (totals.memory_free, totals.largest, totals.stranded) == (1_600, 1_000, 700)
    assert not totals.is_complete
