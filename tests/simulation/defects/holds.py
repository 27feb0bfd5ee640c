"""Deliberate defects about what a tenant writes: it must neither end a hold nor add one."""

from typing import Any, Final

import msgspec

from ledger.core.decide import reserve
from ledger.core.evolve.evolver import evolve
from ledger.core.model import commands, events
from ledger.core.model.denials import Decision, Denial
from ledger.core.model.state import Namespace, State
from ledger.kube.api.objects import ObjectMeta
from simulation.defects.planting import Defect, Put
from webhook.admission.owner_reference_trust import with_controller_as_owner
from webhook.admission.reserved_annotations import STAMP
from webhook.admission.write_attempts import WriteAttempts

_COPY: Final = "copy:"
"""How the owner of what carries a copied annotation begins, where the first defect is planted."""


def _copied_value_ends_a_hold(put: Put) -> None:
    """Take creations with one annotation for tries of one request: the later ends the earlier."""
    honest_create, honest_decided = WriteAttempts.create, reserve._decided

    def create(
        self: WriteAttempts, request: Any, resource: str, meta: ObjectMeta, demand: Any
    ) -> commands.Reserve | Denial:
        made = honest_create(self, request, resource, meta, demand)
        stamp = (meta.annotations or {}).get(STAMP)
        if isinstance(made, Denial) or not stamp:
            return made
        return msgspec.structs.replace(made, owner=_COPY + stamp, owner_holds_max=0)

    def decided(state: State, space: Namespace, command: commands.Reserve) -> Decision:
        released = _earlier(space, command)
        if released is None:
            return honest_decided(state, space, command)
        with state.trying():
            evolve(state, released, state.time)
            decision = honest_decided(state, space, command)
        return decision if isinstance(decision, Denial) or not decision else [released, *decision]

    put(WriteAttempts, "create", create)
    put(reserve, "_decided", decided)


def _earlier(space: Namespace, command: commands.Reserve) -> events.Released | None:
    """Return the end of an earlier creation with the same annotation."""
    if command.base != commands.CREATE or not command.owner.startswith(_COPY):
        return None
    for key, entry in space.entries.items():
        for hold in entry.holds:
            if hold.base == commands.CREATE and hold.owner == command.owner:
                if hold.uid == command.uid:
                    return None
                where = command.namespace, key, hold.uid, hold.base
                return events.Released(*where, events.Cause.SUPERSEDED, 0, command.actor)
    return None


def _any_owner_is_bounded_apart(put: Put) -> None:
    honest = WriteAttempts.create

    def create(
        self: WriteAttempts, request: Any, resource: str, meta: ObjectMeta, demand: Any
    ) -> commands.Reserve | Denial:
        made = honest(self, request, resource, meta, demand)
        if isinstance(made, Denial):
            return made
        return with_controller_as_owner(made, meta.controller())

    put(WriteAttempts, "create", create)


DEFECTS_OF_HOLDS: Final = (
    Defect("copied-value-ends-a-hold", "a copied value ends a hold", _copied_value_ends_a_hold),
    Defect("any-owner-is-bounded-apart", "a false owner adds holds", _any_owner_is_bounded_apart),
)
