"""Scripts: what users, controllers, kubelets and misfortune do in one run, worked out from a seed.

A script is plain data, made before anything runs, so that a failing one can be shortened by
leaving operations out.
"""

import random
from enum import Enum
from typing import Final

import msgspec

REPLICAS_MAX: Final = 3
NAMESPACES: Final = ("red", "blue")
NAMES: Final = ("a", "b", "c")
QUOTAS: Final = ("main", "spare")
OWNERS: Final = ("", "rs-1", "rs-2")

SETTLE_SECONDS: Final = 16.0
"""The bound after which an attempt can be proved dead; longer than any request below can last."""

LATE_SECONDS_MAX: Final = 5.0
"""How late a write can happen after its request failed; a request itself takes up to 10 s."""

NEVER: Final = 1e6
"""Seconds that no run lasts."""

BIG_EVERY: Final = 10
"""Every so many seeds a script is some times longer."""


class Ending(Enum):
    """What becomes of a request after this webhook said yes."""

    STORED = "stored"
    DENIED_BY_WEBHOOK = "another webhook denies"
    DENIED_BY_QUOTA = "the native quota denies"
    LOST = "etcd fails, nothing is written"
    UNKNOWN = "etcd fails, but it is written"
    LATE = "etcd fails, and it is written later"
    BEYOND = "etcd fails, and it is written beyond every bound"
    CLIENT_GONE = "the client is gone before the answer"
    ANSWER_LOST = "the answer of the webhook is lost"


class Operation(msgspec.Struct, frozen=True, tag=True):
    """Something that happens at `at` virtual seconds."""

    at: float


class Create(Operation, frozen=True):
    """A pod is posted: `name` empty means generated, with so many collisions before it fits."""

    namespace: str
    name: str
    gpus: int
    memory: int
    owner: str
    ending: Ending
    collisions: int = 0
    late: float = 0.0
    retries: int = 0
    dry_run: bool = False
    unreviewed: bool = False


class Update(Operation, frozen=True):
    """Clients write a pod at the same time, each with its own memory; 0 changes a label only.

    Those that are refused by others try again `rounds` times, the last time with `last`.
    """

    pick: int
    memories: tuple[int, ...]
    ending: Ending
    stale: bool = False
    repeat: bool = True
    rounds: int = 0
    last: Ending = Ending.STORED
    late: float = 0.0
    dry_run: bool = False


class Status(Operation, frozen=True):
    """The kubelet reports a phase."""

    pick: int
    phase: str


class Delete(Operation, frozen=True):
    """A pod is deleted, confirmed by the kubelet after `confirm` seconds, negative for never."""

    pick: int
    grace: int
    confirm: float


class SetQuota(Operation, frozen=True):
    """A ResourceQuota is written."""

    namespace: str
    name: str
    hard: dict[str, str]


class DropQuota(Operation, frozen=True):
    """A ResourceQuota is deleted."""

    namespace: str
    name: str


class Kill(Operation, frozen=True):
    """A replica is killed and started again after `down` seconds."""

    replica: int
    down: float


class Lease(Operation, frozen=True):
    """These replicas now believe to be the preferred writer, and those to be the one that settles.

    One, none or several of each.
    """

    holders: tuple[int, ...]
    settlers: tuple[int, ...]


class Clock(Operation, frozen=True):
    """A replica's wall clock is off by so many seconds."""

    replica: int
    offset: float


class Stall(Operation, frozen=True):
    """A replica's watches stand still for a while; then they have lost their history, or not."""

    replica: int
    seconds: float
    expired: bool


class Lists(Operation, frozen=True):
    """Lists of a replica take so long, and this share of them fails."""

    replica: int
    seconds: float
    failing: float


class Storm(Operation, frozen=True):
    """The way to the log is bad for a while."""

    seconds: float
    trouble: float
    slow: float


class Partition(Operation, frozen=True):
    """A replica cannot reach the log for a while."""

    replica: int
    seconds: float


class Snapshot(Operation, frozen=True):
    """A replica saves a snapshot after its next record."""

    replica: int


class Script(msgspec.Struct, frozen=True):
    """One run: how many replicas, what happens, and whether the log loses its tail at the end.

    Settlement lists everything anew after `recount` seconds.
    """

    seed: int
    replicas: int
    operations: tuple[Operation, ...]
    recount: float
    cut_tail: bool = False


def write(seed: int) -> Script:
    """Return the script of a seed."""
    return _Author(seed).script()


class _Theme(Enum):
    """What a script has more of, so that rare things meet."""

    NOTHING = "a bit of everything"
    STUBBORN = "updates that others refuse and that are sent again and again"
    CHATTY = "generated names that are taken, and messages that are late"


class _Author:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._source = random.Random(f"script {seed}")
        self._replicas = self._source.randint(1, REPLICAS_MAX)
        self._hostile = self._source.random() < 0.6
        self._theme = self._source.choice(list(_Theme))
        # Tight quotas explore denials, wide ones what happens to objects.
        self._limits = self._source.choice((("8k", "16k", "24k", "0"), ("48k", "96k")))

    def script(self) -> Script:
        source = self._source
        count = source.randint(12, 45) * (4 if self._seed % BIG_EVERY == BIG_EVERY - 1 else 1)
        seconds = 8.0 + count * 0.5
        operations: list[Operation] = [
            self._quota(0.0, namespace, QUOTAS[0]) for namespace in NAMESPACES
        ]
        operations += [self._operation(1.0 + source.random() * seconds) for _ in range(count)]
        operations.sort(key=lambda one: one.at)
        recount = source.choice((20.0, NEVER))
        cut = source.random() < 0.15
        return Script(self._seed, self._replicas, tuple(operations), recount, cut)

    def _operation(self, at: float) -> Operation:
        made = (self._create, self._update, self._status, self._delete, self._any_quota)
        bad = (self._kill, self._lease, self._clock, self._stall, self._lists)
        worse = (self._storm, self._partition, self._snapshot)
        normal = {_Theme.STUBBORN: (8, 14, 1, 2, 3), _Theme.CHATTY: (20, 4, 2, 5, 3)}
        usual = normal.get(self._theme, (14, 8, 2, 5, 3))
        some = (2, 1, 1, 2, 2, 2, 1, 2) if self._hostile else (1, 1, 0, 1, 1, 0, 0, 1)
        return self._source.choices((*made, *bad, *worse), (*usual, *some))[0](at)

    def _replica(self) -> int:
        return self._source.randrange(self._replicas)

    def _memory(self) -> int:
        return self._source.choice((1_000, 2_000, 4_000, 8_000))

    def _ending(self) -> Ending:
        source = self._source
        return Ending.STORED if source.random() < 0.55 else source.choice(list(Ending))

    def _create(self, at: float) -> Operation:
        source = self._source
        chatty = self._theme is _Theme.CHATTY
        collisions = (1, 2, 3) if chatty else (0, 0, 1, 2)
        generated = source.random() < (0.8 if chatty else 0.5)
        return Create(
            at,
            source.choice(NAMESPACES),
            "" if generated else source.choice(NAMES),
            source.choice((1, 1, 2)),
            self._memory(),
            source.choice(OWNERS),
            self._ending(),
            collisions=source.choice(collisions) if generated else 0,
            late=source.random() * LATE_SECONDS_MAX,
            retries=source.choice((0, 0, 1, 3)),
            dry_run=source.random() < 0.05,
            unreviewed=source.random() < 0.04,
        )

    def _update(self, at: float) -> Operation:
        source = self._source
        memories = tuple(
            0 if source.random() < 0.15 else self._memory() for _ in range(source.choice((1, 1, 3)))
        )
        stubborn = self._theme is _Theme.STUBBORN and source.random() < 0.7
        return Update(
            at,
            source.randrange(1_000),
            memories,
            Ending.DENIED_BY_WEBHOOK if stubborn else self._ending(),
            stale=source.random() < 0.3,
            repeat=source.random() < 0.7,
            rounds=6 if stubborn else source.choice((0, 0, 2, 6)),
            last=source.choice((Ending.STORED, Ending.LATE)),
            late=source.random() * LATE_SECONDS_MAX,
            dry_run=source.random() < 0.05,
        )

    def _status(self, at: float) -> Operation:
        phase = self._source.choice(("Running", "Running", "Succeeded", "Failed"))
        return Status(at, self._source.randrange(1_000), phase)

    def _delete(self, at: float) -> Operation:
        source = self._source
        confirm = source.choice((0.5, 3.0, 8.0, -1.0))
        return Delete(at, source.randrange(1_000), source.choice((0, 0, 2, 5)), confirm)

    def _any_quota(self, at: float) -> Operation:
        namespace, name = self._source.choice(NAMESPACES), self._source.choice(QUOTAS)
        if self._source.random() < 0.3:
            return DropQuota(at, namespace, name)
        return self._quota(at, namespace, name)

    def _quota(self, at: float, namespace: str, name: str) -> Operation:
        source = self._source
        hard = {"limits.nvidia.com/gpumem": source.choice(self._limits)}
        if source.random() < 0.5:
            hard["requests.nvidia.com/gpu"] = source.choice(("2", "6", "20"))
        return SetQuota(at, namespace, name, hard)

    def _kill(self, at: float) -> Operation:
        return Kill(at, self._replica(), self._source.choice((0.1, 1.0, 6.0)))

    def _lease(self, at: float) -> Operation:
        holders, settlers = (
            tuple(one for one in range(self._replicas) if self._source.random() < 0.5)
            for _ in range(2)
        )
        return Lease(at, holders, settlers)

    def _clock(self, at: float) -> Operation:
        return Clock(at, self._replica(), self._source.uniform(-50.0, 50.0))

    def _stall(self, at: float) -> Operation:
        source = self._source
        seconds = source.choice((2.0, 8.0, 30.0))
        return Stall(at, self._replica(), seconds, source.random() < 0.5)

    def _lists(self, at: float) -> Operation:
        source = self._source
        return Lists(at, self._replica(), source.choice((0.1, 2.0, 20.0)), source.choice((0, 0.5)))

    def _storm(self, at: float) -> Operation:
        source = self._source
        trouble = source.choice((0.05, 0.3, 0.6))
        return Storm(at, source.choice((2.0, 10.0)), trouble, source.choice((0.0, 0.3)))

    def _partition(self, at: float) -> Operation:
        return Partition(at, self._replica(), self._source.choice((1.0, 5.0, 12.0)))

    def _snapshot(self, at: float) -> Operation:
        return Snapshot(at, self._replica())
