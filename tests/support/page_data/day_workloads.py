"""Day workloads: roots and pods with their whole life, from the review to the end.

A pod's steps follow each other as in a cluster: its review, the choice of cards, the binding, the
observation, the allocation on the node. A pod without room on any card waits without cards.
"""

import uuid
from typing import Final

import msgspec
from support.page_data.decided_day import DecidedDay

from ledger.core.model import commands
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Card, Part, Phase, Share, Stage

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
WATCH: Final = "settlement"
CONTROLLER: Final = "system:serviceaccount:kube-system:replicaset-controller"

_UIDS: Final = uuid.UUID("5e1f7a2c-0000-4000-8000-000000000000")


class PodShape(msgspec.Struct, frozen=True):
    """The demand of each pod: cards, MiB and percent of each; `nodes` in the order of preference.

    A `whole` share allows no other pod on its card. `spread` prefers the emptiest card.
    """

    nodes: tuple[str, ...]
    memory: int
    cores: int = 0
    cards: int = 1
    whole: bool = False
    spread: bool = False

    def demand(self, pods: int = 1) -> Amounts:
        """Return the amounts of so many pods."""
        amounts = {GPU: self.cards, MEMORY: self.cards * self.memory}
        amounts |= {CORES: self.cards * self.cores} if self.cores else {}
        return {resource: pods * amount for resource, amount in amounts.items()}


def uid_of(*names: object) -> str:
    """Return the same uid for the same names."""
    return str(uuid.uuid5(_UIDS, "/".join(map(str, names))))


class Pods:
    """Pods of a namespace, one by one; `root` is the key of what they draw from."""

    def __init__(self, day: DecidedDay, namespace: str, shape: PodShape, actor: str) -> None:
        self.day = day
        self.namespace = namespace
        self.shape = shape
        self.actor = actor
        self.alive: dict[str, str] = {}

    def create(
        self, name: str, *, root: str = "", owner: str = "", container: str = "main"
    ) -> bool:
        """Create a pod; returns whether it was admitted."""
        day, key = self.day, f"pods/{name}"
        uid = uid_of(self.namespace, key, day.number())
        denied = day.do(
            commands.Reserve(
                self.namespace,
                key,
                uid,
                self.shape.demand(),
                owner=owner or self.actor,
                actor=CONTROLLER if root else self.actor,
                root=root,
                asker=commands.Asker("Pod", 1, cards=self.shape.cards),
            )
        )
        if denied is not None:
            return False
        self.alive[name] = uid
        day.later(0.4, self._observe, key, uid, root)
        day.later(0.9, self._place, key, uid, container)
        return True

    def delete(self, name: str, cause: str = "deleted", actor: str = WATCH) -> None:
        """End a pod; nothing if it is not there."""
        uid = self.alive.pop(name, None)
        if uid is not None:
            version = self.day.number()
            self.day.do(commands.End(self.namespace, f"pods/{name}", uid, version, cause, actor))

    def _observe(self, key: str, uid: str, root: str) -> None:
        day = self.day
        seen = (self.namespace, key, uid, day.number(), self.shape.demand(), WATCH)
        day.do(commands.Observe(*seen, root=root))

    def _place(self, key: str, uid: str, container: str) -> None:
        day = self.day
        if self.alive.get(key.removeprefix("pods/")) != uid:
            return
        node, shares = shares_for(day, self.shape)
        if not node:
            return
        parts = (Part(container, Phase.APP, shares),)
        pod = (self.namespace, key, uid)
        if day.do(commands.Place(*pod, node, parts, actor="extender")) is None:
            for seconds, stage in ((0.3, Stage.BOUND), (2.5, Stage.ALLOCATED)):
                day.later(seconds, day.do, commands.Advance(*pod, stage, actor=WATCH))


class Root:
    """A Deployment or Job with its pods; `kind` is its Kubernetes kind."""

    def __init__(
        self, day: DecidedDay, namespace: str, name: str, shape: PodShape, actor: str, *, kind: str
    ) -> None:
        self.day = day
        self.namespace = namespace
        self.name = name
        self.kind = kind
        self.actor = actor
        self.key = f"{_RESOURCES[kind]}/{name}"
        self.uid = uid_of(namespace, self.key)
        self.pods = Pods(day, namespace, shape, actor)
        self.version = 0
        self._generation = 0
        self._born = 0

    def scale(self, replicas: int) -> bool:
        """Create it, or change its replicas; returns whether that was admitted."""
        demand = self.pods.shape.demand(replicas)
        denied = self.day.do(
            commands.Reserve(
                self.namespace,
                self.key,
                self.uid,
                demand,
                base=self.version,
                owner=self.actor,
                actor=self.actor,
                asker=commands.Asker(self.kind, replicas, replicas=self.kind != "Job"),
            )
        )
        if denied is not None:
            return False
        self.version, self._generation = self.day.number(), self._generation + 1
        self.day.later(0.2, self._observe, self.version, demand)
        self.day.later(0.6, self._resize, replicas)
        return True

    def delete(self, cause: str = "deleted") -> None:
        """End it and its pods."""
        for name in list(self.pods.alive):
            self.pods.delete(name, cause)
        version = self.day.number()
        self.day.do(commands.End(self.namespace, self.key, self.uid, version, cause, WATCH))

    def _observe(self, version: int, demand: Amounts) -> None:
        seen = (self.namespace, self.key, self.uid, version, demand, WATCH)
        self.day.do(commands.Observe(*seen, generation=self._generation))

    def _resize(self, replicas: int) -> None:
        for name in list(self.pods.alive)[replicas:]:
            self.pods.delete(name)
        while len(self.pods.alive) < replicas:
            self._born += 1
            suffix = uid_of(self.uid, self._born)[:5]
            name = f"{self.name}-{self.uid[:8]}-{suffix}"
            if not self.pods.create(name, root=self.key, owner=f"{self.kind}/{self.name}"):
                return


_RESOURCES: Final = {
    "Deployment": "deployments.apps",
    "Job": "jobs.batch",
    "StatefulSet": "statefulsets.apps",
}


def shares_for(day: DecidedDay, shape: PodShape) -> tuple[str, tuple[Share, ...]]:
    """Return the first node with room for a pod and its shares there; no node: an empty name."""
    for node in shape.nodes:
        fitting = [card for card in day.state.nodes[node].cards if _fits(day, node, card, shape)]
        fitting.sort(key=lambda card: _free(day, node, card), reverse=shape.spread)
        if len(fitting) >= shape.cards:
            chosen = fitting[: shape.cards]
            return node, tuple(
                Share(card.uuid, shape.memory, shape.cores, shape.whole) for card in chosen
            )
    return "", ()


def _fits(day: DecidedDay, node: str, card: Card, shape: PodShape) -> bool:
    memory, cores, slots = (day.state.used[line] for line in day.state.card_lines[node, card.uuid])
    room = card.memory - memory >= shape.memory and card.cores - cores >= max(shape.cores, 1)
    usable = card.healthy and not card.cordoned and not card.mode
    return usable and room and slots < card.slots and not (shape.whole and slots)


def _free(day: DecidedDay, node: str, card: Card) -> int:
    return card.memory - day.state.used[day.state.card_lines[node, card.uuid][0]]
