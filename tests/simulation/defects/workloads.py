"""Deliberate defects about roots, their envelopes, and quotas over many namespaces."""

from typing import Any, Final

from ledger.core import invariants
from ledger.core.decide import decider, observe_object
from ledger.core.evolve import envelope_charges, evolver, line_charges, quota_coverage
from ledger.core.evolve.envelope_charges import ChargeTerm, drawn_from
from ledger.core.model import commands, events
from ledger.core.model import state as core_state
from ledger.core.model.amounts import plus
from ledger.core.model.state import Entry, Namespace, State
from ledger.kube.api.objects import Workload
from simulation.defects.planting import Defect, Put
from webhook.admission import owner_reference_trust
from webhook.admission.objects import scale_admission
from webhook.admission.objects.scale_admission import ScaleAdmission
from webhook.context.owner_cache_content import cached_workload
from webhook.settlement import observation_commands
from webhook.settlement.root_lookup import RootLookup


def _envelope_and_pods_add_up(put: Put) -> None:
    honest = envelope_charges.terms

    def terms(space: Namespace, unit: str) -> list[ChargeTerm]:
        entry, draw = space.entries.get(unit), space.draws.get(unit)
        if entry is None or draw is None or drawn_from(entry):
            return honest(space, unit)
        return [ChargeTerm(entry.traits, plus(entry.charge, draw.charge))]

    for module in (envelope_charges, quota_coverage, invariants):
        put(module, "terms", terms)


def _envelope_stays(put: Put) -> None:
    honest = decider.HANDLERS[commands.End]

    def end(state: State, command: commands.End) -> Any:
        is_root = not command.key.startswith(envelope_charges.PODS)
        return [] if is_root and command.cause == "deleted" else honest(state, command)

    put(decider, "HANDLERS", {**decider.HANDLERS, commands.End: end})


def _every_user_draws(put: Put) -> None:
    put(owner_reference_trust, "is_controller", lambda *_: True)


def _barred_until_seen(put: Put) -> None:
    put(envelope_charges, "is_barred", lambda *_: False)


def _one_account_skipped(put: Put) -> None:
    honest = quota_coverage.plans

    def plans(known: Any, covering: Any, labels: Any) -> Any:
        names = tuple(covering)
        return honest(known, names[:-1] if len(names) > 1 else names, labels)

    put(quota_coverage, "plans", plans)


def _labels_move_nothing(put: Put) -> None:
    def described(state: State, event: events.Described, _: int) -> line_charges.Postings:
        core_state.put(state, state.described, event.subject, event.traits)
        if "/" in event.subject:
            quota_coverage.open_namespace(state, event.subject)
        return []

    put(evolver, "_APPLY", {**evolver._APPLY, events.Described: described})


def _opened_uncovered(put: Put) -> None:
    def open_namespace(state: State, name: str) -> Namespace:
        return state.namespaces.setdefault(name, Namespace())

    put(quota_coverage, "open_namespace", open_namespace)


def _status_raises(put: Put) -> None:
    put(observe_object, "_lowered", lambda _, command: command)
    put(observation_commands, "_is_as", _is_the_same)


def _is_the_same(stored: Any, seen: Any) -> bool:
    known = stored.root, stored.traits, stored.demand
    return known == (seen.root, seen.traits, seen.demand)


def _part_is_a_root(put: Put) -> None:
    async def of_root(self: RootLookup, workload: Any, **_: Any) -> Any:
        return workload.seen, False

    put(RootLookup, "of_root", of_root)


def _scaled_from_memory(put: Put) -> None:
    async def parent(self: ScaleAdmission, request: Any, kind: Any, old: Any, _: float) -> Any:
        seen = self._context.parents.get(old.metadata.uid)
        known: Workload | None = cached_workload(seen) if seen is not None else None
        return known or scale_admission._Moot.ASKS_NOTHING

    put(ScaleAdmission, "_parent", parent)


def _any_body_draws(put: Put) -> None:
    honest = envelope_charges.entry_of

    def entry_of(committed: Any, holds: Any) -> Entry:
        entry = honest(committed, holds)
        roots = [body.root for body in (committed, *holds) if body is not None and body.root]
        if entry.root or not roots:
            return entry
        return Entry(entry.committed, entry.holds, entry.charge, roots[0], entry.traits)

    put(evolver, "entry_of", entry_of)


DEFECTS_OF_ROOTS: Final = (
    Defect("envelope-plus-pods", "envelope and pods add up", _envelope_and_pods_add_up),
    Defect("envelope-stays", "a deleted root keeps its envelope", _envelope_stays),
    Defect("any-user-draws", "a user that names an owner draws from it", _every_user_draws),
    Defect("barred-until-seen", "what was barred draws once it is seen", _barred_until_seen),
    Defect("one-account-skipped", "of several accounts one is not charged", _one_account_skipped),
    Defect("labels-move-nothing", "other labels leave quotas where they are", _labels_move_nothing),
    Defect("opened-uncovered", "a new namespace counts in no universe quota", _opened_uncovered),
    Defect("status-raises", "a status raises an envelope", _status_raises),
    Defect("part-is-a-root", "a ReplicaSet counts beside its Deployment", _part_is_a_root),
    Defect("scaled-from-memory", "a scale is charged at a stale version", _scaled_from_memory),
    Defect("any-body-draws", "a key draws although one of its bodies does not", _any_body_draws),
)
