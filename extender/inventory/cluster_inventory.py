"""The inventory of a cluster: the arrays of its cards, kept up to date from the log.

Each applied record is applied here: postings hold the use of each line, events the cards, the pods
with a card for themselves, and the claims. The use is read from the state once, at the beginning,
because the state may later be ahead of the record.
"""

from collections.abc import Callable, Mapping, Set
from typing import Any, Final

import structlog
from msgspec import structs

from extender.inventory import card_rows
from extender.inventory.card_arrays import CardArrays
from extender.inventory.card_rows import CardColumn, PairScores
from extender.inventory.claim_bookings import claimed_bookings
from extender.inventory.inventory_node import InventoryNode, Place
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.settlement.allocated_devices.device_shares import is_of_claims
from extender.settlement.allocated_devices.offered_cards import OfferedCards
from ledger.core.evolve.evolver import Postings
from ledger.core.evolve.preemption_claims import claim_of
from ledger.core.model import card_bookings, cards, events
from ledger.core.model.cards import Placement, PreemptionClaim, Stage
from ledger.core.model.state import State
from ledger.log.records import Record

_USED: Final = ("used_memory", "used_cores", "used_slots")

_log: Final = structlog.get_logger("extender")


class ClusterInventory:
    """The cards of one cluster.

    `rows` has the row of each node by its local name, and `names` the reverse, empty for a free
    row: the row of a removed node is given to another. `arrays` is another object after a reload.
    Cards kept by claims are in `overlay`. `reloads` counts the records that contradicted the
    inventory, `surprises` the placements that were not assumed here: other extenders place pods.
    """

    def __init__(self, cluster: str, overlay: UsageOverlay) -> None:
        """Start without nodes; `load` reads them."""
        self.cluster, self.overlay = cluster, overlay
        self.arrays = CardArrays()
        self.rows: dict[str, int] = {}
        self.names: list[str] = [""] * self.arrays.rows
        self.position = 0
        self.reloads = 0
        self.surprises = 0
        self.loaded = False
        self._prefix = f"{cluster}/"
        self._free = list(range(self.arrays.rows - 1, -1, -1))
        self._nodes: dict[str, InventoryNode] = {}
        self._spots: dict[int, tuple[int, int, int]] = {}
        self._placed: dict[Place, Placement] = {}
        self._claimed: dict[Place, str] = {}
        self._pairs: dict[str, PairScores] = {}
        self._offered = OfferedCards()

    def load(self, state: State) -> None:
        """Load a state, for the first time or again; known nodes keep their rows.

        While the state has changes that are not stored yet, nothing is loaded: the next record
        does it.
        """
        self.loaded = not state.journal
        if not self.loaded:
            return
        self._reset(state)
        for name, node in state.nodes.items():
            if name.startswith(self._prefix):
                self._load_node(state, name, node)
        self.position = state.position

    def follow(self, state: State, record: Record) -> None:
        """Apply the next record that was applied to the state.

        A record that was applied here already changes nothing. After a gap the state is loaded.
        """
        if self.loaded and record.position <= self.position:
            return
        problem = "" if record.position == self.position + 1 else "a record is missing"
        if self.loaded and not problem:
            problem = self._try(state, record)
        if problem:
            self.reloads += 1
            _log.warning("inventory_is_loaded_anew", position=record.position, problem=problem)
        if problem or not self.loaded:
            self.load(state)
        else:
            self.position = record.position

    def residents(self, node: str) -> Mapping[Place, Placement]:
        """Return the pods on a node, given by its local name, by namespace and key."""
        known = self._nodes.get(self._prefix + node)
        return known.residents if known is not None else {}

    def frozen_copy(self) -> "ClusterInventory":
        """Return the cards and pods as they are now; do not load the copy or let it follow."""
        copy = ClusterInventory(self.cluster, self.overlay.copy())
        copy.arrays = self.arrays.copy()
        copy.rows, copy.names = dict(self.rows), list(self.names)
        copy.position, copy.loaded = self.position, self.loaded
        copy._nodes = {name: node.frozen_copy() for name, node in self._nodes.items()}
        return copy

    def has_placed(self, namespace: str, key: str, uid: str) -> bool:
        """Return whether the pod of a uid has cards."""
        placed = self._placed.get((namespace, key))
        return placed is not None and placed.uid == uid

    def set_scores(self, node: str, pairs: PairScores) -> None:
        """Set the link scores of the cards of a node, given by its local name."""
        if pairs:
            self._pairs[node] = pairs
        else:
            self._pairs.pop(node, None)
        if node in self.rows:
            card_rows.write_scores(self.arrays, self.rows[node], pairs)

    def set_offered(self, node: str, uuids: Set[str]) -> None:
        """Leave cards of a node, given by its local name or empty for any, to kube-scheduler."""
        self._offered.set(node, dict.fromkeys(uuids, ""))
        for name in self.rows.keys() & {node} if node else self.rows:
            card_rows.write_offered(self.arrays, self.rows[name], self._offered.of(name))

    def _try(self, state: State, record: Record) -> str:
        """Apply a record; return how it contradicts the inventory, empty if it does not."""
        for item in record.items:
            try:
                self._apply(state, item.event, item.postings)
            except (LookupError, ValueError, ArithmeticError) as error:
                return f"{type(item.event).__name__}: {type(error).__name__} {error}"
        return ""

    def _apply(self, state: State, event: events.AnyEvent, postings: Postings) -> None:
        apply = _APPLY.get(type(event))
        if apply is not None:
            apply(self, event, state)
        for at in range(0, len(postings), 3):
            spot = self._spots.get(postings[at])
            if spot is not None:
                row, column, which = spot
                getattr(self.arrays, _USED[which])[row, column] = postings[at + 2]

    def _reset(self, state: State) -> None:
        """Forget everything except the rows of the existing nodes."""
        self.arrays = CardArrays(self.arrays.rows, self.arrays.columns)
        for at, name in enumerate(self.names):
            self.overlay.clear(at)
            if name and self._prefix + name not in state.nodes:
                self._give_row_back(name)
        self._nodes, self._spots, self._placed, self._claimed = {}, {}, {}, {}

    def _load_node(self, state: State, name: str, node: cards.NodeCards) -> None:
        known = self._open(name)
        known.gone = node.gone
        lines = state.card_lines
        columns = card_rows.in_order((card, lines[name, card.uuid]) for card in node.cards)
        columns += [CardColumn(card.uuid, lines[name, card.uuid], None) for card in node.lost]
        used = {column.uuid: tuple(state.used[line] for line in column.lines) for column in columns}
        self._lay_out(known, node.keeper, columns, used)
        for namespace, key in state.residents[name]:
            self._enter((namespace, key), state.namespaces[namespace].placed[key])
        for claim in state.claims.get(name, ()):
            self._claim(name, claim)

    def _registered(self, event: events.CardsRegistered, _: State) -> None:
        if not event.node.startswith(self._prefix):
            return
        known = self._open(event.node)
        known.gone = False
        columns = card_rows.in_order(zip(event.cards, event.lines, strict=True))
        self._change(known, event.keeper, columns)

    def _removed(self, event: events.NodeRemoved, _: State) -> None:
        if not event.node.startswith(self._prefix):
            return
        known = self._nodes[event.node]
        known.gone = True
        self._change(known, self.arrays.keepers[known.row], [])
        self._forget_if_empty(event.node)

    def _placed_on(self, event: events.Placed, _: State) -> None:
        if not event.node.startswith(self._prefix):
            return
        self._end_claim((event.namespace, event.key))
        seen = event.cause == events.Cause.SEEN
        stage = Stage.BOUND if seen else Stage.PROPOSED
        self._enter(
            (event.namespace, event.key),
            Placement(event.uid, event.node, event.parts, {}, 0, stage, observed=seen),
        )
        if not self.overlay.drop(event.uid) and not is_of_claims(event.parts):
            self.surprises += 1

    def _advanced(self, event: events.Advanced, _: State) -> None:
        if event.namespace.startswith(self._prefix):
            place = event.namespace, event.key
            before = self._leave(place)
            after = structs.replace(before, stage=event.stage, initialised=event.initialised)
            self._enter(place, after)

    def _resized(self, event: events.Resized, _: State) -> None:
        if event.namespace.startswith(self._prefix):
            place = event.namespace, event.key
            self._enter(place, structs.replace(self._leave(place), parts=event.parts))

    def _unplaced(self, event: events.Unplaced, _: State) -> None:
        if event.namespace.startswith(self._prefix):
            self._forget_if_empty(self._leave((event.namespace, event.key)).node)

    def _released(self, event: events.Released, state: State) -> None:
        """Remove an ended pod, unless another object or attempt at its key has ended.

        Only the state shows which: an object and several attempts may be the same pod.
        """
        place = event.namespace, event.key
        if place in self._claimed and claim_of(state, *place) is None:
            self._end_claim(place)
        before = self._placed.get(place)
        if before is None:
            return
        after = state.namespaces[event.namespace].placed.get(event.key)
        if after is None or after.uid != before.uid:
            self._forget_if_empty(self._leave(place).node)

    def _claimed_on(self, event: events.Claimed, _: State) -> None:
        if event.node.startswith(self._prefix):
            who = event.namespace, event.key, event.uid
            self._end_claim(who[:2])
            self._claim(event.node, PreemptionClaim(*who, event.parts, event.victims, 0))

    def _withdrawn(self, event: events.Withdrawn, _: State) -> None:
        self._end_claim((event.namespace, event.key))

    def _open(self, name: str) -> InventoryNode:
        """Return a node, with a row of its own."""
        known = self._nodes.get(name)
        if known is None:
            known = self._nodes[name] = InventoryNode(self._row_of(name.removeprefix(self._prefix)))
        return known

    def _row_of(self, short: str) -> int:
        row = self.rows.get(short)
        if row is None:
            if not self._free:
                self._grow(2 * self.arrays.rows, self.arrays.columns)
            row = self.rows[short] = self._free.pop()
            self.names[row] = short
        return row

    def _grow(self, height: int, width: int) -> None:
        """Grow arrays and overlay to this many nodes and cards per node."""
        before = self.arrays.rows
        self.arrays.grow(height, width)
        self.overlay.grow(height, width)
        self._free += range(self.arrays.rows - 1, before - 1, -1)
        self.names += [""] * (self.arrays.rows - before)

    def _change(self, known: InventoryNode, keeper: str, columns: list[CardColumn]) -> None:
        """Replace a node's cards; the use of cards is kept, also of lost cards."""
        used = {
            column.uuid: tuple(int(getattr(self.arrays, name)[known.row, at]) for name in _USED)
            for at, column in enumerate(known.columns)
        }
        kept = {column.uuid for column in columns}
        columns += [
            column._replace(card=None, is_cut=False)
            for column in known.columns
            if column.uuid not in kept and any(used[column.uuid])
        ]
        self._lay_out(known, keeper, columns, used)

    def _lay_out(
        self,
        known: InventoryNode,
        keeper: str,
        columns: list[CardColumn],
        used: dict[str, tuple[int, ...]],
    ) -> None:
        row = known.row
        if [column.uuid for column in columns] != [column.uuid for column in known.columns]:
            self.overlay.clear(row)
        for column in known.columns:
            for line in column.lines:
                self._spots.pop(line, None)
        self._grow(self.arrays.rows, len(columns))
        if known.columns:
            card_rows.clear(self.arrays, row)
        known.columns = columns
        card_rows.write(self.arrays, row, columns, used)
        for at, column in enumerate(columns):
            for which, line in enumerate(column.lines):
                self._spots[line] = row, at, which
        self.arrays.keepers[row] = keeper
        card_rows.write_scores(self.arrays, row, self._pairs.get(self.names[row], {}))
        card_rows.write_offered(self.arrays, row, self._offered.of(self.names[row]))
        for placed in known.residents.values():
            self._count(known, placed, 1)
        self._cut(known)
        self._reclaim(known)

    def _enter(self, place: Place, placed: Placement) -> None:
        """Add a placed pod to its node, replacing its earlier placement."""
        if place in self._placed:
            self._leave(place)
        known = self._nodes[placed.node]
        self._placed[place] = known.residents[place] = placed
        self._account(known, placed, 1)

    def _leave(self, place: Place) -> Placement:
        """Remove a placed pod from its node. Raises KeyError."""
        placed = self._placed.pop(place)
        known = self._nodes[placed.node]
        del known.residents[place]
        self._account(known, placed, -1)
        return placed

    def _count(self, known: InventoryNode, placed: Placement, sign: int) -> None:
        if placed.stage < Stage.ALLOCATED:
            self.arrays.waiting[known.row] += sign
        for uuid in card_bookings.exclusive_on(placed.parts, initialised=placed.initialised):
            self.arrays.alone[known.row, known.column_of(uuid)] += sign

    def _account(self, known: InventoryNode, placed: Placement, sign: int) -> None:
        """Count a pod in or out, and recompute all that depends on all pods of its node."""
        self._count(known, placed, sign)
        if any(column.is_cut for column in known.columns):
            self._cut(known)
        if known.claims:
            self._reclaim(known)

    def _cut(self, known: InventoryNode) -> None:
        """Recompute the taken slices of a node's cards.

        A pod that another scheduler placed without naming slices may be on any of them.
        """
        residents = known.residents.values()
        for at, column in enumerate(known.columns):
            if not column.is_cut:
                continue
            unknown = any(card_rows.lies_anywhere(placed, column.uuid) for placed in residents)
            bits = card_rows.ALL_SLICES if unknown else card_rows.slices_of(residents, column.uuid)
            self.arrays.slices[known.row, at] = bits

    def _claim(self, name: str, claim: PreemptionClaim) -> None:
        known, place = self._nodes[name], (claim.namespace, claim.key)
        known.claims[place] = claim
        self._claimed[place] = name
        self._reclaim(known)

    def _end_claim(self, place: Place) -> None:
        if name := self._claimed.pop(place, ""):
            self.overlay.release(self._nodes[name].claims.pop(place).uid)

    def _reclaim(self, known: InventoryNode) -> None:
        """Recompute the cards that the claims of a node keep beside their victims' use."""
        at = {column.uuid: number for number, column in enumerate(known.columns)}
        for claim in known.claims.values():
            bookings = {
                at[uuid]: booking
                for uuid, booking in claimed_bookings(claim, known.residents).items()
                if uuid in at
            }
            alone = {at[uuid] for uuid in card_bookings.exclusive_on(claim.parts) if uuid in at}
            self.overlay.keep(claim.uid, known.row, bookings, alone)

    def _forget_if_empty(self, name: str) -> None:
        """Give the row of a node back that is gone, once no pod holds anything there."""
        known = self._nodes[name]
        if not known.gone or known.residents:
            return
        for place in list(known.claims):
            self._end_claim(place)
        self._lay_out(known, "", [], {})
        del self._nodes[name]
        self._give_row_back(name.removeprefix(self._prefix))

    def _give_row_back(self, short: str) -> None:
        row = self.rows.pop(short)
        self.names[row] = ""
        self._pairs.pop(short, None)
        self.overlay.clear(row)
        self._free.append(row)


_APPLY: Final[dict[type, Callable[[ClusterInventory, Any, State], None]]] = {
    events.CardsRegistered: ClusterInventory._registered,
    events.NodeRemoved: ClusterInventory._removed,
    events.Placed: ClusterInventory._placed_on,
    events.Advanced: ClusterInventory._advanced,
    events.Resized: ClusterInventory._resized,
    events.Unplaced: ClusterInventory._unplaced,
    events.Released: ClusterInventory._released,
    events.Claimed: ClusterInventory._claimed_on,
    events.Withdrawn: ClusterInventory._withdrawn,
}
