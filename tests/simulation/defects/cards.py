"""Deliberate defects about nodes, cards, and pods that are placed there."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from extender.bind import bind_or_give_back, binding_writer
from extender.bind.bind_or_give_back import Binder
from extender.bind.binding_writer import BindingOutcome, BindingState, BindingWriter
from extender.fit import card_filters
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.settlement import placement_drift
from extender.settlement.card_reconciler_context import SETTLED
from extender.settlement.placement_reconciler import PlacementReconciler
from extender.settlement.unbound_placements import UnboundPlacements
from extender.verbs.filter_nodes import SELECT, NodeFilter
from ledger.core.decide import decider
from ledger.core.decide.cards import card_checks, claim_for_preemptor
from ledger.core.evolve import placement_charges
from ledger.core.model import commands, events
from ledger.core.model.cards import uuids
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.kube.api import cluster_ports
from ledger.kube.requests.device_requests import DeviceRequest
from simulation.defects.planting import Defect, Put
from simulation.model.settings import SETTLE_SECONDS
from simulation.oracle import checked_extender
from simulation.world import simulated_extender

_USED_OF_CARDS: Final = ("used_memory", "used_cores", "used_slots", "alone")


async def _nothing(*_: Any) -> None:
    """Do nothing."""


def _no_problem(*_: Any) -> tuple[str, ...]:
    """Find nothing wrong with a node, so that the rule of the ledger alone is missed."""
    return ()


def _no_undo(put: Put) -> None:
    put(Binder, "_undo", _nothing)
    put(UnboundPlacements, "settle", _nothing)


def _unbound_never_settled(put: Put) -> None:
    put(UnboundPlacements, "settle", _nothing)


def _unclear_means_refused(put: Put) -> None:
    async def look(self: BindingWriter, pod: Any, node: str, reason: str) -> BindingOutcome:
        del self, pod, node
        return BindingOutcome(BindingState.REFUSED, reason)

    put(BindingWriter, "_look", look)


def _age_is_proof(put: Put) -> None:
    async def settle(self: UnboundPlacements, subject: Any) -> None:
        del self._since[subject]
        placed = self._context.placement(subject.namespace, subject.key)
        if placed is not None:
            who = subject.namespace, subject.key, subject.uid
            undo = commands.Unplace(*who, placed.node, events.Cause.UNBOUND, SETTLED, bound=True)
            await self._context.commands.send(undo)

    put(UnboundPlacements, "_settle", settle)
    short = msgspec.structs.replace(simulated_extender.SETTINGS, settle_seconds=SETTLE_SECONDS / 8)
    put(simulated_extender, "SETTINGS", short)


def _annotations_believed(put: Put) -> None:
    honest = PlacementReconciler._judge

    def judge(self: PlacementReconciler, reading: Any, placed: Any, pod: Any) -> Any:
        if (
            placed is not None
            and reading.node
            and placement_drift.annotation_drift(reading, placed)
        ):
            return [
                placement_drift.unplace_from_old_node(reading, placed),
                *self._seen(reading, pod),
            ]
        return honest(self, reading, placed, pod)

    put(PlacementReconciler, "_judge", judge)


def _others_unseen(put: Put) -> None:
    put(PlacementReconciler, "_seen", lambda *_: [])


def _exclusivity_unchecked(put: Put) -> None:
    honest = card_filters.criteria_of

    def ask(cards: Any, wish: DeviceRequest, **more: Any) -> Any:
        return honest(cards, msgspec.structs.replace(wish, exclusive=False), **more)

    put(card_checks, "in_the_way", lambda *_: None)
    put(card_filters, "criteria_of", ask)
    put(checked_extender, "unfit", _no_problem)


def _node_never_busy(put: Put) -> None:
    put(card_checks, "busy", lambda *_: None)


def _claim_ignored(put: Put) -> None:
    put(claim_for_preemptor, "kept", lambda *_: {})
    put(card_checks, "kept_alone", lambda *_: None)
    put(UsageOverlay, "keep", lambda *_: None)
    put(checked_extender, "unfit", _no_problem)


def _ill_cards_given(put: Put) -> None:
    put(card_checks, "unusable", lambda *_, **__: None)


def _vanished_cards_freed(put: Put) -> None:
    def freeing(kind: type) -> Any:
        honest = decider.HANDLERS[kind]

        def decide(state: State, command: Any) -> Any:
            decided = honest(state, command)
            if isinstance(decided, Denial) or not decided:
                return decided
            left = {card.uuid for card in getattr(command, "cards", ())}
            return [*_freed(state, command.node, left), *decided]

        return decide

    kinds = commands.RegisterCards, commands.RemoveNode
    put(decider, "HANDLERS", {**decider.HANDLERS, **{kind: freeing(kind) for kind in kinds}})


def _freed(state: State, node: str, left: set[str]) -> Iterator[events.Unplaced]:
    """Yield events that take pods off the cards of a node that are gone."""
    for namespace, key, placed in card_checks.residents(state, node):
        if not uuids(placed.parts).keys() <= left:
            yield events.Unplaced(namespace, key, placed.uid, events.Cause.UNBOUND)


def _end_keeps_cards(put: Put) -> None:
    put(placement_charges, "vacate", lambda *_: [])


def _select_ignores_placements(put: Put) -> None:
    honest = NodeFilter._verdicts

    def verdicts(self: NodeFilter, pod: Any, nodes: Any, verb: str) -> Any:
        arrays = self._fit.inventory.arrays
        used = {name: getattr(arrays, name) for name in _USED_OF_CARDS if verb == SELECT}
        for name, amounts in used.items():
            setattr(arrays, name, np.zeros_like(amounts))
        try:
            return honest(self, pod, nodes, verb)
        finally:
            for name, amounts in used.items():
                setattr(arrays, name, amounts)

    put(NodeFilter, "_verdicts", verdicts)


def _fence_without_proof(put: Put) -> None:
    put(bind_or_give_back, "version_of", lambda _: 2**62)


def _binding_of_any_version(put: Put) -> None:
    def bind(**given: Any) -> cluster_ports.PodBinding:
        return cluster_ports.PodBinding(**{**given, "version": ""})

    put(binding_writer, "PodBinding", bind)


DEFECTS_OF_CARDS: Final = (
    Defect("no-undo", "cards of a refused Binding are kept", _no_undo),
    Defect("unbound-never-settled", "what a killed binder left stays", _unbound_never_settled),
    Defect("unclear-means-refused", "a lost Binding counts as refused", _unclear_means_refused),
    Defect("age-is-proof", "a placement is undone soon and without a look", _age_is_proof),
    Defect("annotations-believed", "annotations overrule the ledger", _annotations_believed),
    Defect("others-unseen", "whom somebody else placed is not charged", _others_unseen),
    Defect("exclusivity-unchecked", "a card had alone is shared", _exclusivity_unchecked),
    Defect("node-never-busy", "HAMi's node hands out to two at a time", _node_never_busy),
    Defect("claim-ignored", "what is kept for a pod goes to others", _claim_ignored),
    Defect("ill-cards-given", "cards are given that are ill or closed", _ill_cards_given),
    Defect("vanished-cards-freed", "a card that is gone leaves its pods", _vanished_cards_freed),
    Defect("end-keeps-cards", "a pod that has ended keeps its cards", _end_keeps_cards),
    Defect("select-ignores-placements", "cards look free to select", _select_ignores_placements),
    Defect("fence-without-proof", "a fence is believed that changed nothing", _fence_without_proof),
    Defect("binding-of-any-version", "Bindings outlive the fence", _binding_of_any_version),
)
