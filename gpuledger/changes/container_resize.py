"""Container resize: the ledger is asked for other amounts on the cards of a running container.

A container with a MIG instance is refused, because an instance keeps its size.
"""

import msgspec

from extender.settlement.allocated_devices.device_shares import is_of_claims
from gpuledger.changes import resize_advice
from gpuledger.cli.exit_codes import CommandError, Exit, denied_error
from gpuledger.storage.open_log import ACTOR, open_log, writer_on
from gpuledger.storage.projection_catch_up import show_written
from gpuledger.wiring import demand_rules_from_settings
from ledger.core.evolve.envelope_charges import PODS
from ledger.core.model import cards
from ledger.core.model.cards import Part, Parts, Placement
from ledger.core.model.commands import Resize
from ledger.core.model.denials import Denial
from ledger.core.model.devices import CLAIM_PART
from ledger.core.model.qualified_names import local_name, qualified
from ledger.core.model.state import State
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_requests import PodDeviceRequest
from ledger.kube.requests.placements.quota_demand_of_placement import demand_of_placement
from ledger.runtime.settings.settings import Settings


class ResizeRequest(msgspec.Struct, frozen=True):
    """The wanted amounts of a container of each of its cards: MiB and percent; None: unchanged."""

    namespace: str
    pod: str
    container: str
    memory: int | None
    cores: int | None


class CardChange(msgspec.Struct, frozen=True):
    """A container's amounts of one card before and after, in MiB and percent of the card."""

    container: str
    node: str
    uuid: str
    memory_before: int
    memory: int
    cores_before: int
    cores: int


class ResizeResult(msgspec.Struct, frozen=True):
    """The changes of a resize, whether it was written, and the position of its record.

    After a dry run, `position` is that of the decision.
    """

    namespace: str
    pod: str
    changed: bool
    position: int
    cards: list[CardChange]


async def resize(settings: Settings, wanted: ResizeRequest, *, dry_run: bool) -> ResizeResult:
    """Decide on a resize and write it, unless `dry_run`. Raises CommandError, and what the log
    raises."""
    rules = demand_rules_from_settings.demand_rules(settings)
    async with open_log(settings) as opened:
        async with writer_on(settings, opened) as writer:
            placed = _placed(writer.state, settings.cluster, wanted)
            command = _command(writer.state, settings.cluster, wanted, placed, rules)
            changes = _changes(placed, command.parts, wanted.container)
            accepted = await writer.submit(command, dry_run=dry_run)
            if isinstance(accepted, Denial):
                raise _denied(writer.state, accepted, settings, wanted, placed)
        if not dry_run:
            await show_written(settings, opened, accepted.position)
    return ResizeResult(wanted.namespace, wanted.pod, accepted.changed, accepted.position, changes)


def _denied(
    state: State, denial: Denial, settings: Settings, wanted: ResizeRequest, placed: Placement
) -> CommandError:
    """Return the error of a denied resize."""
    rules = demand_rules_from_settings.demand_rules(settings)
    given = {cards.MEMORY: wanted.memory, cards.CORES: wanted.cores}

    def command(amounts: dict[str, int]) -> Resize:
        other = msgspec.structs.replace(wanted, **{**dict.fromkeys(given), **amounts})
        return _command(state, settings.cluster, other, placed, rules)

    amounts = {name: amount for name, amount in given.items() if amount is not None}
    asked = resize_advice.ResizeTrial(wanted.container, placed, amounts, command)
    remedy = resize_advice.advice(state, asked) if denial.shortages else denial.remedy
    return denied_error(msgspec.structs.replace(denial, remedy=remedy))


def resized(parts: Parts, wanted: ResizeRequest) -> Parts:
    """Return the parts with the wanted amounts of each card of the container."""
    return tuple(
        _part(part, wanted) if part.container == wanted.container else part for part in parts
    )


def _part(part: Part, wanted: ResizeRequest) -> Part:
    shares = tuple(
        msgspec.structs.replace(
            share,
            memory=share.memory if wanted.memory is None else wanted.memory,
            cores=share.cores if wanted.cores is None else wanted.cores,
        )
        for share in part.shares
    )
    return msgspec.structs.replace(part, shares=shares)


def _placed(state: State, cluster: str, wanted: ResizeRequest) -> Placement:
    """Return the pod's placement. Raises CommandError when the pod or the container has no card."""
    placed = state.placement(qualified(cluster, wanted.namespace), f"{PODS}{wanted.pod}")
    if placed is None or not placed.node:
        raise CommandError(
            Exit.NOT_FOUND,
            f"pod {wanted.pod} of namespace {wanted.namespace} in cluster {cluster} has no card;"
            " `gpuledger cards --pods` lists the pods with cards",
        )
    refuse_claims(placed.parts, wanted)
    having = [part.container for part in placed.parts if part.shares]
    if wanted.container not in having:
        raise CommandError(
            Exit.NOT_FOUND,
            f"container {wanted.container!r} of pod {wanted.pod} has no card; those that have:"
            f" {', '.join(having)}",
        )
    refuse_instances(placed.parts, wanted)
    return placed


def refuse_claims(parts: Parts, wanted: ResizeRequest) -> None:
    """Raise CommandError when kube-scheduler allocated the cards for resource claims."""
    if is_of_claims(parts):
        names = ", ".join(part.container.removeprefix(CLAIM_PART) for part in parts)
        raise CommandError(
            Exit.DENIED,
            f"pod {wanted.pod} has its cards by resource claims ({names}), and an allocation keeps"
            " its size; delete the pod and the claims and create them with other amounts",
        )


def refuse_instances(parts: Parts, wanted: ResizeRequest) -> None:
    """Raise CommandError when the container has a MIG instance."""
    for part in parts:
        for share in part.shares:
            if part.container == wanted.container and share.profile:
                raise CommandError(
                    Exit.DENIED,
                    f"container {wanted.container!r} of pod {wanted.pod} has the instance"
                    f" {share.profile} of {share.uuid}, and an instance (MIG) keeps its size;"
                    " delete the pod and create it with other amounts",
                )


def _command(
    state: State, cluster: str, wanted: ResizeRequest, placed: Placement, rules: DemandRules
) -> Resize:
    """Return the command, with the whole demand of the pod on its cards."""
    namespace, key = qualified(cluster, wanted.namespace), f"{PODS}{wanted.pod}"
    parts = resized(placed.parts, wanted)
    charge = state.namespaces[namespace].entries[key].charge
    types = tuple(
        name for name, typed in rules.typed.items() if not charge.keys().isdisjoint(typed.values())
    )
    node = state.nodes[placed.node]
    stands = demand_of_placement(
        parts,
        PodDeviceRequest((), types=types),
        rules,
        (*node.cards, *node.lost),
        initialised=placed.initialised,
    )
    return Resize(namespace, key, placed.uid, parts, stands, ACTOR)


def _changes(placed: Placement, after: Parts, container: str) -> list[CardChange]:
    node = local_name(placed.node)
    return [
        CardChange(container, node, old.uuid, old.memory, new.memory, old.cores, new.cores)
        for before, now in zip(placed.parts, after, strict=True)
        if before.container == container
        for old, new in zip(before.shares, now.shares, strict=True)
    ]
