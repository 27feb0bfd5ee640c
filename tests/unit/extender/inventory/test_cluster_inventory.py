"""The inventory: the changes of records in the arrays, and the causes of a reload."""

from typing import Any

import pytest
from support.builders.decide_and_fold import record

from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from ledger.core.model import card_bookings, cards, commands
from ledger.core.model.cards import Card, Part, Phase, Profile, Share
from ledger.core.model.commands import AnyCommand
from ledger.core.model.state import State
from ledger.log import records

NODE, TEAM = "c1/n1", "c1/team"
PROFILE = Profile("1g", 5, 10, 2, ((0, 2), (2, 2)))


def _card(number: int, **changes: object) -> Card:
    fields: dict[str, object] = {
        "uuid": f"GPU-{number}",
        "index": number,
        "type": "A100",
        "memory": 40,
        "cores": 100,
        "slots": 4,
    }
    return Card(**{**fields, **changes})  # type: ignore[arg-type]


def _register(
    *announced: Card, keeper: str = cards.OWN, node: str = NODE
) -> commands.RegisterCards:
    return commands.RegisterCards(node, keeper, announced)


def _app(*shares: Share) -> tuple[Part, ...]:
    return (Part("main", Phase.APP, shares),)


def _pod(name: str) -> commands.Reserve:
    return commands.Reserve(TEAM, f"pods/{name}", name, {"nvidia.com/gpu": 1})


def _place(name: str, *shares: Share, **more: Any) -> commands.Place:
    return commands.Place(TEAM, f"pods/{name}", name, NODE, _app(*shares), **more)


class Ledger:
    """A state, and an inventory that follows it."""

    def __init__(self) -> None:
        self.state = State()
        self.inventory = ClusterInventory("c1", UsageOverlay())
        self.inventory.load(self.state)

    def apply(self, *asked: AnyCommand) -> None:
        for command in asked:
            payload = record(self.state, [command])
            assert payload is not None, f"{command} changed nothing"
            self.inventory.follow(self.state, records.decode(payload)[0])

    def column(self, uuid: str) -> tuple[int, int]:
        row = self.inventory.rows["n1"]
        return row, self.inventory.arrays.uuids[row].index(uuid)

    def used(self, uuid: str) -> tuple[int, int, int]:
        arrays, at = self.inventory.arrays, self.column(uuid)
        return (
            int(arrays.used_memory[at]),
            int(arrays.used_cores[at]),
            int(arrays.used_slots[at]),
        )


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def test_cards_stand_in_the_order_of_their_index(ledger: Ledger) -> None:
    ledger.apply(_register(_card(1), _card(0, numa=1, healthy=False, cordoned=True)))
    arrays, row = ledger.inventory.arrays, ledger.inventory.rows["n1"]
    assert arrays.uuids[row][:3] == ["GPU-0", "GPU-1", ""]
    assert arrays.present[row].tolist()[:3] == [True, True, False]
    assert arrays.usable[row].tolist()[:3] == [False, True, False]
    assert (arrays.cordoned[row, 0], arrays.numa[row, 0]) == (True, 1)
    assert (arrays.memory[row, 1], arrays.cores[row, 1], arrays.slots[row, 1]) == (40, 100, 4)
    assert arrays.kinds[arrays.kind[row, 1]] == "A100"


def test_what_pods_take_is_used_and_given_back(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0), _card(1)), _pod("a"))
    ledger.apply(_place("a", Share("GPU-1", 10, 30)))
    assert (ledger.used("GPU-0"), ledger.used("GPU-1")) == ((0, 0, 0), (10, 30, 1))
    ledger.apply(commands.Resize(TEAM, "pods/a", "a", _app(Share("GPU-1", 15, 30)), {}))
    assert ledger.used("GPU-1") == (15, 30, 1)
    ledger.apply(commands.Unplace(TEAM, "pods/a", "a", NODE, "unbound"))
    assert ledger.used("GPU-1") == (0, 0, 0)


def test_a_pod_that_has_a_card_alone_is_counted_until_it_ends(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0)), _pod("a"))
    ledger.apply(_place("a", Share("GPU-0", 10, 100, exclusive=True)))
    at = ledger.column("GPU-0")
    assert ledger.inventory.arrays.alone[at] == 1
    ledger.apply(commands.Refute(TEAM, "pods/a", "a", 0))
    assert ledger.inventory.arrays.alone[at] == 0
    assert ledger.used("GPU-0") == (0, 0, 0)


def test_placements_that_are_not_handed_out_wait(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0), keeper=cards.HAMI), _pod("a"))
    ledger.apply(_place("a", Share("GPU-0", 10, 0)))
    row = ledger.inventory.rows["n1"]
    assert (ledger.inventory.arrays.keepers[row], ledger.inventory.arrays.waiting[row]) == (
        cards.HAMI,
        1,
    )
    ledger.apply(commands.Advance(TEAM, "pods/a", "a", cards.Stage.ALLOCATED))
    assert ledger.inventory.arrays.waiting[row] == 0


def test_instances_take_their_slices(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0, mode=cards.MIG, profiles=(PROFILE,))), _pod("a"), _pod("b"))
    ledger.apply(_place("a", Share("GPU-0", 5, 10, False, "1g", 2, 2)))
    at = ledger.column("GPU-0")
    assert int(ledger.inventory.arrays.slices[at]) == 0b1100
    ledger.apply(_place("b", Share("GPU-0", 5, 10, False, "1g", 0, 2)))
    ledger.apply(commands.Unplace(TEAM, "pods/a", "a", NODE, "unbound"))
    assert int(ledger.inventory.arrays.slices[at]) == 0b11


def test_a_share_of_unknown_slices_may_lie_on_any_slice_of_a_cut_card(
    ledger: Ledger,
) -> None:
    cut = _card(0, mode=cards.MIG, profiles=(PROFILE,))
    ledger.apply(_register(cut, _card(1)), _pod("a"), _pod("b"))
    ledger.apply(_place("a", Share("GPU-0", 5, 10), seen=True))
    at, whole = ledger.column("GPU-0"), ledger.column("GPU-1")
    assert int(ledger.inventory.arrays.slices[at]) == 2**64 - 1
    ledger.apply(_place("b", Share("GPU-1", 5, 10)))
    assert int(ledger.inventory.arrays.slices[whole]) == 0
    ledger.apply(commands.End(TEAM, "pods/a", "a", 9, "deleted"))
    assert int(ledger.inventory.arrays.slices[at]) == 0


def test_a_card_that_is_lost_and_found_has_what_pods_hold_of_it(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0), _card(1)), _pod("a"))
    ledger.apply(_place("a", Share("GPU-0", 10, 100, exclusive=True)))
    ledger.apply(_register(_card(1)))
    arrays, at = ledger.inventory.arrays, ledger.column("GPU-0")
    assert at[1] == 1
    assert (bool(arrays.present[at]), bool(arrays.usable[at])) == (False, False)
    ledger.apply(_register(_card(0), _card(1)))
    assert ledger.column("GPU-0")[1] == 0
    assert ledger.used("GPU-0") == (10, 100, 1)
    assert ledger.inventory.arrays.alone[ledger.column("GPU-0")] == 1


def test_the_row_of_a_node_that_is_gone_is_given_to_another(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0)), _pod("a"), _place("a", Share("GPU-0", 10, 0)))
    row = ledger.inventory.rows["n1"]
    ledger.apply(commands.RemoveNode(NODE))
    assert "n1" in ledger.inventory.rows
    assert not ledger.inventory.arrays.present[row].any()
    ledger.apply(commands.Refute(TEAM, "pods/a", "a", 0))
    assert "n1" not in ledger.inventory.rows
    ledger.apply(_register(_card(0), node="c1/n2"))
    assert (ledger.inventory.rows["n2"], ledger.inventory.names[row]) == (row, "n2")


def test_nodes_of_other_clusters_have_no_row(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0), node="c2/n1"))
    assert ledger.inventory.rows == {}


def test_more_nodes_and_cards_than_there_is_room_for_make_room(ledger: Ledger) -> None:
    for number in range(70):
        ledger.apply(_register(*(_card(index) for index in range(10)), node=f"c1/m{number}"))
    inventory = ledger.inventory
    assert (inventory.arrays.rows, inventory.arrays.columns) == (128, 10)
    assert inventory.overlay.memory.shape == (128, 10)
    assert sorted(inventory.rows.values()) == list(range(70))
    assert inventory.arrays.present[:70].all()


def test_assumed_placement_ends_once_the_pod_is_placed(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0)), _pod("a"))
    row, column = ledger.column("GPU-0")
    ledger.inventory.overlay.add("a", row, {column: card_bookings.Booking(10, 0, 1)}, until=1e9)
    ledger.apply(_place("a", Share("GPU-0", 10, 0)))
    assert not ledger.inventory.overlay.memory.any()
    assert ledger.used("GPU-0") == (10, 0, 1)


def test_what_is_kept_for_a_pod_grows_as_its_victims_leave(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0)), _pod("low"), _pod("high"))
    ledger.apply(_place("low", Share("GPU-0", 30, 0)))
    victims = ((TEAM, "pods/low", "low"),)
    wanted = _app(Share("GPU-0", 40, 100, exclusive=True))
    ledger.apply(commands.MakeRoom(TEAM, "pods/high", "high", NODE, wanted, victims))
    overlay, at = ledger.inventory.overlay, ledger.column("GPU-0")
    assert (overlay.memory[at], overlay.slots[at], overlay.alone[at]) == (10, 0, 1)
    ledger.apply(commands.Refute(TEAM, "pods/low", "low", 0))
    assert (overlay.memory[at], overlay.slots[at]) == (40, 1)
    ledger.apply(commands.Place(TEAM, "pods/high", "high", NODE, wanted))
    assert (overlay.memory[at], overlay.slots[at], overlay.alone[at]) == (0, 0, 0)


def test_pair_scores_follow_the_cards_to_other_columns(ledger: Ledger) -> None:
    ledger.inventory.set_scores("n1", {("GPU-1", "GPU-2"): 7, ("GPU-2", "GPU-1"): 7})
    ledger.apply(_register(_card(1), _card(2)))
    row = ledger.inventory.rows["n1"]
    assert ledger.inventory.arrays.scores[row][0, 1] == 7
    ledger.apply(_register(_card(0), _card(1), _card(2)))
    assert ledger.inventory.arrays.scores[row][1, 2] == 7
    ledger.inventory.set_scores("n1", {})
    assert row not in ledger.inventory.arrays.scores


def test_missing_record_loads_the_state_again(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0)), _pod("a"))
    record(ledger.state, [_place("a", Share("GPU-0", 10, 0))])
    ledger.apply(commands.Advance(TEAM, "pods/a", "a", cards.Stage.ALLOCATED))
    assert ledger.inventory.reloads == 1
    assert ledger.used("GPU-0") == (10, 0, 1)


def test_contradicting_record_loads_the_state_again(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0)), _pod("a"), _place("a", Share("GPU-0", 10, 0)))
    ledger.inventory._placed.clear()
    ledger.apply(commands.Advance(TEAM, "pods/a", "a", cards.Stage.ALLOCATED))
    assert ledger.inventory.reloads == 1
    assert ledger.inventory.arrays.waiting[ledger.inventory.rows["n1"]] == 0


def test_a_record_that_is_known_already_changes_nothing(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0)), _pod("a"))
    payload = record(ledger.state, [_place("a", Share("GPU-0", 10, 0))])
    assert payload is not None
    known, _ = records.decode(payload)
    ledger.inventory.load(ledger.state)
    ledger.inventory.follow(ledger.state, known)
    assert ledger.inventory.reloads == 0
    assert ledger.inventory.arrays.waiting[ledger.inventory.rows["n1"]] == 1


def test_what_may_still_be_taken_back_is_not_loaded(ledger: Ledger) -> None:
    ledger.apply(_register(_card(0)))
    inventory = ClusterInventory("c1", UsageOverlay())
    ledger.state.journal = []
    ledger.state.journal.append(("anything", "that", "is undone"))
    inventory.load(ledger.state)
    assert (inventory.loaded, inventory.rows) == (False, {})
    ledger.state.journal.clear()
    payload = record(ledger.state, [_pod("a")])
    assert payload is not None
    inventory.follow(ledger.state, records.decode(payload)[0])
    assert inventory.loaded
    assert list(inventory.rows) == ["n1"]
