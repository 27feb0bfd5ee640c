"""The inventory that follows the log is the one that is loaded from the state."""

from hypothesis import given
from hypothesis import strategies as st
from support.carded import random_life
from support.folding import record

from extender.arrays import INTEGERS
from extender.inventory import Inventory
from extender.overlay import Overlay
from ledger.core.state import State
from ledger.log import records

seeds = st.integers(min_value=0, max_value=2**32)

NUMBERED = {"kind": "kinds", "vendor": "vendors", "mode": "modes", "table": "tables"}


def _cards(inventory: Inventory) -> dict[tuple[str, str], tuple[object, ...]]:
    """Return all that the arrays and the overlay say of each card; of a lost one, what is used."""
    arrays, overlay = inventory.arrays, inventory.overlay
    found: dict[tuple[str, str], tuple[object, ...]] = {}
    for name, row in inventory.rows.items():
        for at, uuid in enumerate(arrays.uuids[row]):
            present = bool(arrays.present[row, at])
            values: list[object] = [arrays.keepers[row], arrays.waiting[row], inventory.names[row]]
            for one in INTEGERS:
                value = int(getattr(arrays, one)[row, at])
                if one not in NUMBERED:
                    values.append(value)
                elif present:
                    values.append(getattr(arrays, NUMBERED[one])[value])
            values += [present, arrays.usable[row, at], arrays.cordoned[row, at]]
            values += [int(arrays.slices[row, at])]
            for one in ("memory", "cores", "slots", "alone"):
                values.append(int(getattr(overlay, one)[row, at]))
            if present or arrays.used_slots[row, at]:
                found[name, uuid] = tuple(values)
    return found


@given(seeds)
def test_following_the_log_gives_what_loading_the_state_gives(seed: int) -> None:
    state = State()
    followed = Inventory("c1", Overlay())
    followed.load(state)
    for command in random_life(seed, 80, state):
        payload = record(state, [command], time=state.position)
        if payload is None:
            continue
        followed.follow(state, records.decode(payload)[0])
        loaded = Inventory("c1", Overlay())
        loaded.load(state)
        assert followed.reloads == 0
        assert _cards(followed) == _cards(loaded)
        for one in ("used_memory", "used_cores", "used_slots", "alone"):
            assert getattr(followed.arrays, one).min() >= 0
        assert followed.rows.keys() == loaded.rows.keys()
