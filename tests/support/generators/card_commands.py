"""Card commands: random placements and ends of pods on few small cards, from a seed."""

import random

from ledger.core.model import cards, commands
from ledger.core.model.accounts import quota
from ledger.core.model.cards import Card, Part, Parts, Phase, Profile, Share, Stage
from ledger.core.model.state import State

NAMESPACES = ("c1/red", "c1/blue")
NODES = ("c1/n0", "c1/n1", "c1/n2")
GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
PROFILES = (
    Profile("1g", 10, 20, 1, ((0, 1), (1, 1), (2, 1), (3, 1))),
    Profile("2g", 20, 40, 2, ((0, 2), (2, 2))),
)
ROOT = "deployments.apps/web"


def random_life(seed: int, count: int, state: State) -> "RandomLife":
    """Return commands that are made one by one, each for the state as it is then."""
    return RandomLife(random.Random(seed), count, state)


class RandomLife:
    """An iterator of commands; the caller applies each to the state before the next."""

    def __init__(self, source: random.Random, count: int, state: State) -> None:
        self._source, self._left, self._state = source, count, state
        self._first: list[commands.AnyCommand] = [
            commands.SetLimits(quota("c1", "red", "gpus"), ("c1/red",), {f"limits.{MEMORY}": 160}),
            *(self._register(node) for node in NODES[:2]),
        ]

    def __iter__(self) -> "RandomLife":
        return self

    def __next__(self) -> commands.AnyCommand:
        if self._first:
            return self._first.pop(0)
        if not self._left:
            raise StopIteration
        self._left -= 1
        makers = (
            self._reserve,
            self._observe,
            self._end,
            self._refute,
            self._place,
            self._advance,
            self._unplace,
            self._resize,
            self._make_room,
            self._withdraw,
            self._announce,
            self._remove,
            self._limits,
        )
        weights = (30, 25, 16, 4, 60, 20, 10, 10, 8, 3, 8, 3, 2)
        return self._source.choices(makers, weights)[0]()

    def _where(self) -> tuple[str, str, str]:
        source = self._source
        if source.random() < 0.85:
            known = [
                (name, key, body.uid)
                for name, space in self._state.namespaces.items()
                for key, entry in space.entries.items()
                for body in (*([entry.committed] if entry.committed else ()), *entry.holds)
                if key.startswith("pods/")
            ]
            if known:
                return source.choice(known)
        return (
            source.choice(NAMESPACES),
            f"pods/p{source.randint(0, 9)}",
            f"uid-{source.randint(0, 29)}",
        )

    def _fresh(self) -> tuple[str, str, str]:
        source = self._source
        number = source.randint(0, 9)
        return source.choice(NAMESPACES), f"pods/p{number}", f"uid-{number}-{source.randint(0, 3)}"

    def _demand(self) -> dict[str, int]:
        return {GPU: 1, MEMORY: self._source.choice((5, 10, 20, 40))}

    def _reserve(self) -> commands.AnyCommand:
        source = self._source
        if source.random() < 0.1:
            return commands.Reserve(source.choice(NAMESPACES), ROOT, "root-0", {GPU: 4, MEMORY: 80})
        base = source.choice((0, 0, 0, 0, 3))
        where = self._where() if base else self._fresh()
        return commands.Reserve(
            *where, self._demand(), base=base, root=source.choice(("", "", ROOT))
        )

    def _observe(self) -> commands.AnyCommand:
        source = self._source
        if source.random() < 0.1:
            where = source.choice(NAMESPACES), ROOT, "root-0"
            return commands.Observe(*where, source.randint(1, 9), {GPU: 4, MEMORY: 80})
        return commands.Observe(
            *self._where(),
            source.randint(1, 9),
            self._demand() if source.random() < 0.9 else {},
            root=source.choice(("", "", ROOT)),
        )

    def _end(self) -> commands.AnyCommand:
        return commands.End(
            *self._where(), self._source.randint(0, 9), self._source.choice(("deleted", "finished"))
        )

    def _refute(self) -> commands.AnyCommand:
        return commands.Refute(*self._where(), self._source.choice((0, 3)))

    def _card(self, node: str, number: int) -> Card:
        source = self._source
        is_cut = number == 3
        return Card(
            f"GPU-{node[-1]}-{number}",
            number,
            source.choice(("A100", "H100")),
            source.choice((40, 40, 80)),
            100,
            source.choice((4, 4, 2)),
            mode=cards.MIG if is_cut else "",
            healthy=source.random() < 0.95,
            cordoned=source.random() < 0.05,
            profiles=PROFILES if is_cut else (),
        )

    def _register(self, node: str) -> commands.RegisterCards:
        source = self._source
        numbers = [number for number in range(4) if source.random() < 0.85]
        return commands.RegisterCards(
            node,
            source.choice((cards.OWN, cards.OWN, cards.HAMI)),
            tuple(self._card(node, number) for number in numbers),
            version=source.choice((0, 0, 1, 2)),
        )

    def _announce(self) -> commands.AnyCommand:
        return self._register(self._source.choice(NODES))

    def _remove(self) -> commands.AnyCommand:
        return commands.RemoveNode(self._source.choice(NODES))

    def _share(self, node: str) -> Share:
        source = self._source
        number = source.randint(0, 3)
        uuid = f"GPU-{node[-1]}-{number}"
        if number == 3 and source.random() < 0.9:
            profile = source.choice(PROFILES)
            start, size = source.choice(profile.placements)
            return Share(uuid, profile.memory, profile.cores, False, profile.name, start, size)
        if source.random() < 0.2:
            return Share(uuid, source.choice((20, 40)), 100, exclusive=True)
        return Share(uuid, source.choice((5, 10, 20)), source.choice((0, 10, 30)))

    def _parts(self, node: str) -> Parts:
        source = self._source
        phases = sorted(
            (source.choice((Phase.INIT, Phase.SIDECAR, Phase.APP)) for _ in range(2)),
            key=lambda phase: phase == Phase.APP,
        )
        return tuple(
            Part(
                f"c{at}",
                phase,
                tuple(self._share(node) for _ in range(source.choice((0, 1, 1, 2)))),
            )
            for at, phase in enumerate(phases)
        )

    def _stands(self) -> dict[str, int]:
        source = self._source
        return {MEMORY: source.choice((5, 10, 30))} if source.random() < 0.4 else {}

    def _place(self) -> commands.AnyCommand:
        source, node = self._source, self._source.choice(NODES)
        return commands.Place(
            *self._where(),
            node,
            self._parts(node),
            self._stands(),
            alone=source.random() < 0.1,
            seen=source.random() < 0.15,
        )

    def _placed(self) -> tuple[str, str, str, str, Parts]:
        """Return a pod that is placed, any other where there is none, with its node and parts."""
        placed = [
            (name, key, placement.uid, placement.node, placement.parts)
            for name, space in self._state.namespaces.items()
            for key, placement in space.placed.items()
            if placement.node
        ]
        if placed and self._source.random() < 0.95:
            return self._source.choice(placed)
        return (*self._where(), NODES[0], self._parts(NODES[0]))

    def _advance(self) -> commands.AnyCommand:
        source = self._source
        return commands.Advance(
            *self._placed()[:3],
            source.choice((Stage.BOUND, Stage.ALLOCATED, Stage.ALLOCATED)),
            source.random() < 0.5,
            self._stands(),
        )

    def _unplace(self) -> commands.AnyCommand:
        return commands.Unplace(*self._placed()[:4], "unbound")

    def _resize(self) -> commands.AnyCommand:
        namespace, key, uid, _, parts = self._placed()
        source = self._source
        after = tuple(
            Part(
                part.container,
                part.phase,
                tuple(
                    Share(share.uuid, source.choice((5, 10, 30)), share.cores, share.exclusive)
                    for share in part.shares
                ),
            )
            for part in parts
        )
        return commands.Resize(namespace, key, uid, after, self._stands())

    def _make_room(self) -> commands.AnyCommand:
        node = self._source.choice(NODES)
        there = [
            (namespace, key, self._state.namespaces[namespace].placed[key].uid)
            for namespace, key in self._state.residents.get(node, ())
        ]
        victims = tuple(victim for victim in there if self._source.random() < 0.7)
        return commands.MakeRoom(*self._where(), node, self._parts(node), victims)

    def _withdraw(self) -> commands.AnyCommand:
        return commands.Withdraw(*self._where(), "elapsed")

    def _limits(self) -> commands.AnyCommand:
        limit = self._source.choice((60, 160, 400))
        return commands.SetLimits(
            quota("c1", "red", "gpus"), ("c1/red",), {f"limits.{MEMORY}": limit}
        )
