"""The inventory that follows the log is the one that is loaded from the state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders.decide_and_fold import record
from support.generators.card_commands import random_life

from extender.inventory.card_arrays import INTEGERS
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from ledger.core.model.state import State
from ledger.log import records

seeds = st.integers(min_value=0, max_value=2**32)

USED = ("used_memory", "used_cores", "used_slots")
NUMBERED = {"kind": "kinds", "vendor": "vendors", "mode": "modes", "table": "tables"}


def _cards(inventory: ClusterInventory) -> dict[tuple[str, str], tuple[object, ...]]:
    """Return the arrays' and the overlay's values of each card; of a lost one, its usage."""
    arrays, overlay = inventory.arrays, inventory.overlay
    cards: dict[tuple[str, str], tuple[object, ...]] = {}
    for name, row in inventory.rows.items():
        for at, uuid in enumerate(arrays.uuids[row]):
            present = bool(arrays.present[row, at])
            values: list[object] = [arrays.keepers[row], arrays.waiting[row], inventory.names[row]]
            for field in INTEGERS:
                value = int(getattr(arrays, field)[row, at])
                if field not in NUMBERED:
                    values.append(value)
                elif present:
                    values.append(getattr(arrays, NUMBERED[field])[value])
            values += [present, arrays.usable[row, at], arrays.cordoned[row, at]]
            values += [int(arrays.slices[row, at])]
            for field in ("memory", "cores", "slots", "alone"):
                values.append(int(getattr(overlay, field)[row, at]))
            if present or arrays.used_slots[row, at]:
                cards[name, uuid] = tuple(values)
    return cards


def _differs(seed: int) -> str:
    """Follow a random life; return where that differs from what is loaded, empty if nowhere."""
    state = State()
    followed = ClusterInventory("c1", UsageOverlay())
    followed.load(state)
    for command in random_life(seed, 80, state):
        payload = record(state, [command], time=state.position)
        if payload is None:
            continue
        followed.follow(state, records.decode(payload)[0])
        loaded = ClusterInventory("c1", UsageOverlay())
        loaded.load(state)
        used = (getattr(followed.arrays, field) for field in ("alone", *USED))
        if followed.reloads or any(array.min() < 0 for array in used):
            return f"seed {seed}: after {command}, {followed.reloads} reloads"
        if _cards(followed) != _cards(loaded) or followed.rows.keys() != loaded.rows.keys():
            return f"seed {seed}: {command} leads elsewhere"
    return ""


@given(seeds)
def test_following_the_log_gives_what_loading_the_state_gives(seed: int) -> None:
    assert _differs(seed) == ""


@pytest.mark.parametrize(
    "forgotten", ["_cut", "_reclaim", "_count", "_end_claim", "_forget_if_empty"]
)
def test_following_that_forgets_something_leads_elsewhere(forgotten: str, monkeypatch) -> None:
    real_load = ClusterInventory.load

    def load(self: ClusterInventory, state: State) -> None:
        with monkeypatch.context() as whole:
            whole.setattr(ClusterInventory, forgotten, kept)
            real_load(self, state)

    kept = getattr(ClusterInventory, forgotten)
    monkeypatch.setattr(ClusterInventory, "load", load)
    monkeypatch.setattr(ClusterInventory, forgotten, lambda *_: None)
    assert any(_differs(seed) for seed in range(40))
