"""Checked extender: the verbs of a replica, and whether each returned node has room for the pod.

The room follows from the events of the log up to the position of the replica, by the independent
account of `card_event_oracle`. Cards that a replica only assumes to be taken may hide nodes, and
are not checked.
"""

from collections.abc import Iterator
from typing import Protocol

from extender.scheduler_api.extender_wire import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
)
from extender.scheduler_extender import Extender
from ledger.core.model.cards import Part, Phase, Share
from ledger.core.model.state import State
from ledger.kube.api.objects import Pod
from simulation.model import kinds
from simulation.oracle.card_event_oracle import CardEventOracle, PlacedCards
from simulation.oracle.checker import Checker

RULE = "a returned node has room for the pod"

_WHOLE = 100
"""The percent by which a pod asks for a card of its own."""


class View(Protocol):
    """The state of a replica, as far as it has read the log."""

    @property
    def state(self) -> State:
        """The state at the position of the replica."""
        ...


class CheckedExtender:
    """The extender of a replica, whose every returned node is looked at."""

    def __init__(self, extender: Extender, view: View, checker: Checker) -> None:
        self._extender, self._view, self._checker = extender, view, checker

    async def filter(self, args: ExtenderArgs) -> FilterResult:
        """Return the nodes on which a pod fits."""
        return self._looked_at(args, "filter", await self._extender.filter(args))

    async def select(self, args: ExtenderArgs) -> FilterResult:
        """Return the best nodes for a pod."""
        return self._looked_at(args, "select", await self._extender.select(args))

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """Return the scores of nodes."""
        return await self._extender.prioritize(args)

    async def bind(self, args: BindingArgs) -> BindingResult:
        """Bind a pod."""
        return await self._extender.bind(args)

    def _looked_at(self, args: ExtenderArgs, verb: str, answer: FilterResult) -> FilterResult:
        position, pod = self._view.state.position, args.pod
        if pod is None or position >= len(self._checker.cards):
            return answer
        cluster, meta = self._extender.inventory.cluster, pod.metadata
        place = f"{cluster}/{meta.namespace}", f"pods/{meta.name}"
        # A writer decides ahead of its log. The oracle checks this placement with its event.
        held = self._view.state.cards_held(*place, meta.uid)
        books = self._checker.cards[position]
        standing = books.placed.get(place)
        if held is None and standing is not None and standing.uid == meta.uid:
            return answer  # the cards of the pod are being given back
        for node in answer.node_names or ():
            if held is not None and held.node == f"{cluster}/{node}":
                continue
            for problem in unfit(books, pod, cluster, node):
                self._checker.fail(RULE, f"{verb} at {position} returns {node}: {problem}")
        return answer


def unfit(books: CardEventOracle, pod: Pod, cluster: str, node: str) -> Iterator[str]:
    """Yield why a pod that asks for cards cannot be placed on a node."""
    meta = pod.metadata
    place, where = (f"{cluster}/{meta.namespace}", f"pods/{meta.name}"), f"{cluster}/{node}"
    count, memory, cores = _asked(pod)
    standing = books.placed.get(place)
    if standing is not None and standing.uid == meta.uid:
        if standing.node != where:
            yield f"{place[1]} has cards of {standing.node} already"
        return
    problems: list[str] = []
    cards = books.cards.get(where, {})
    for uuid in cards:
        share = Share(uuid, memory, cores, exclusive=cores == _WHOLE)
        wanted = PlacedCards(meta.uid, where, (Part("main", Phase.APP, (share,)),), 0)
        problems += list(books.room_for(place, wanted))[:1]
    if len(cards) - len(problems) < count:
        yield f"{place[1]} needs {count} of {len(cards)} cards: {'; '.join(problems)}"


def _asked(pod: Pod) -> tuple[int, int, int]:
    """Return how many cards a pod asks for, and the MiB and percent of each."""
    [container] = pod.spec.containers or []
    limits = (container.resources.limits if container.resources is not None else None) or {}
    count, memory, cores = (
        int(str(limits.get(name, 0))) for name in (kinds.GPU, kinds.MEMORY, kinds.CORES)
    )
    return count, memory, cores
