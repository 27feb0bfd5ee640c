"""Operations author: one operation of each sort, with chances that let rare events meet."""

import random
from typing import Final

from simulation.model import kinds
from simulation.model.operations import (
    ChangeRoot,
    Clock,
    Create,
    CreateRoot,
    CutLink,
    Delete,
    DeleteRoot,
    Deletion,
    DropQuota,
    DropUniverse,
    Ending,
    Kill,
    LabelNamespace,
    Lease,
    Lists,
    MoveCluster,
    Operation,
    Partition,
    Progress,
    SetPolicy,
    SetQuota,
    SetUniverse,
    Snapshot,
    Stall,
    Status,
    Storm,
    Update,
)
from simulation.model.settings import CLUSTERS

NAMESPACES: Final = ("red", "blue")
NAMES: Final = ("a", "b", "c")
ROOT_NAMES: Final = ("web", "train")
QUOTAS: Final = ("main", "spare")
UNIVERSE: Final = ("all", "some")
OWNERS: Final = ("", "rs-1", "rs-2")
APPS: Final = ("", "alpha")
PRIORITIES: Final = ("", "", "high")
REGIONS: Final = ("", "north", "south")
LABELS: Final[tuple[dict[str, str], ...]] = ({}, {"tier": "gold"}, {"tier": "gold", "team": "x"})
POLICIES: Final[tuple[dict[str, object] | None, ...]] = (
    None,
    {"mode": "warn"},
    {"mode": "off"},
    {"podsOnly": True},
    {"surge": "strict"},
)

COPIES: Final = (3, 6, 10)
"""How many copies of one pod are posted at once, where any are: also more than one user may."""

LATE_SECONDS_MAX: Final = 5.0
"""How late a write can happen after its request failed; a request itself takes up to 10 s."""

_MEMORY: Final = "limits.nvidia.com/gpumem"
_CARDS: Final = "requests.nvidia.com/gpu"
_PICKS: Final = 1_000


class OperationsAuthor:
    """Makes operations from a seeded source. The script decides which are more frequent."""

    def __init__(self, source: random.Random, replicas: int, *, chatty: bool) -> None:
        """A `chatty` run has more generated names that are taken."""
        self._source = source
        self._replicas = replicas
        self._chatty = chatty
        # Tight quotas explore denials, wide ones what happens to objects.
        self._limits = source.choice((("8k", "16k", "24k", "0"), ("48k", "96k")))

    def create(self, at: float) -> Create:
        """A pod is posted."""
        source = self._source
        collisions = (1, 2, 3) if self._chatty else (0, 0, 1, 2)
        generated = source.random() < (0.8 if self._chatty else 0.5)
        return Create(
            at,
            self._cluster(),
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
            app=source.choice(APPS),
            priority=source.choice(PRIORITIES),
            forged=source.random() < 0.1,
            copies=self._copies(),
        )

    def _copies(self) -> int:
        copied = self._source.random() < (0.2 if self._chatty else 0.05)
        return self._source.choice(COPIES) if copied else 0

    def update(self, at: float, *, stubborn: bool) -> Update:
        """A pod is changed; who is stubborn mostly comes again after others refused."""
        source = self._source
        memories = tuple(
            0 if source.random() < 0.15 else self._memory() for _ in range(source.choice((1, 1, 3)))
        )
        stubborn = stubborn and source.random() < 0.7
        return Update(
            at,
            self._cluster(),
            self._pick(),
            memories,
            Ending.DENIED_BY_WEBHOOK if stubborn else self._ending(),
            stale=source.random() < 0.3,
            repeat=source.random() < 0.7,
            rounds=6 if stubborn else source.choice((0, 0, 2, 6)),
            last=source.choice((Ending.STORED, Ending.LATE)),
            late=source.random() * LATE_SECONDS_MAX,
            dry_run=source.random() < 0.05,
        )

    def status(self, at: float) -> Status:
        """A kubelet reports."""
        phase = self._source.choice(("Running", "Running", "Succeeded", "Failed"))
        return Status(at, self._cluster(), self._pick(), phase)

    def delete(self, at: float) -> Delete:
        """A pod is deleted."""
        source = self._source
        confirm = source.choice((0.5, 3.0, 8.0, -1.0))
        return Delete(at, self._cluster(), self._pick(), source.choice((0, 0, 2, 5)), confirm)

    def create_root(self, at: float) -> CreateRoot:
        """Something that makes pods is posted."""
        source = self._source
        return CreateRoot(
            at,
            self._cluster(),
            source.choice(NAMESPACES),
            source.choice(list(kinds.ROOTS)),
            source.choice(ROOT_NAMES),
            source.choice((0, 1, 2, 2, 3)),
            self._memory(),
            self._ending(),
            late=source.random() * LATE_SECONDS_MAX,
            retries=source.choice((0, 0, 1, 3)),
            dry_run=source.random() < 0.05,
            unreviewed=source.random() < 0.08,
            app=source.choice(APPS),
            priority=source.choice(PRIORITIES),
            forged=source.random() < 0.15,
        )

    def change_root(self, at: float) -> ChangeRoot:
        """Something that makes pods is changed by one client or several."""
        source = self._source
        clients = source.choice((1, 2, 2, 4))
        return ChangeRoot(
            at,
            self._cluster(),
            self._pick(),
            tuple(source.choice((0, 1, 2, 3, 4)) for _ in range(clients)),
            self._ending(),
            memory=self._memory() if source.random() < 0.6 else 0,
            app=source.choice((*APPS, "")),
            suspend=source.choice((None, None, True, False)),
            scale=source.random() < 0.5,
            stale=source.random() < 0.3,
            repeat=source.random() < 0.7,
            late=source.random() * LATE_SECONDS_MAX,
            dry_run=source.random() < 0.05,
        )

    def progress(self, at: float) -> Progress:
        """A Job goes on, or seems to go back."""
        source = self._source
        done = source.choice((0, 1, 2, 3))
        return Progress(at, self._cluster(), self._pick(), done, source.random() < 0.2)

    def delete_root(self, at: float) -> DeleteRoot:
        """Something that makes pods is deleted."""
        return DeleteRoot(at, self._cluster(), self._pick(), self._source.choice(list(Deletion)))

    def any_quota(self, at: float) -> Operation:
        """A ResourceQuota is written or deleted."""
        if self._source.random() < 0.3:
            return DropQuota(
                at, self._cluster(), self._source.choice(NAMESPACES), self._source.choice(QUOTAS)
            )
        return self.quota(at)

    def quota(self, at: float) -> SetQuota:
        """A ResourceQuota is written."""
        source = self._source
        hard = {_MEMORY: source.choice(self._limits)}
        if source.random() < 0.5:
            hard[_CARDS] = source.choice(("2", "6", "20"))
        return SetQuota(
            at,
            self._cluster(),
            source.choice(NAMESPACES),
            source.choice(QUOTAS),
            hard,
            "high" if source.random() < 0.3 else "",
        )

    def any_universe(self, at: float) -> Operation:
        """A UniverseResourceQuota is written or deleted."""
        if self._source.random() < 0.2:
            return DropUniverse(at, self._source.choice(UNIVERSE))
        return self.universe(at)

    def universe(self, at: float) -> SetUniverse:
        """A UniverseResourceQuota is written."""
        source = self._source
        spec: dict[str, object] = {"hard": {_MEMORY: source.choice(self._limits)}}
        if source.random() < 0.5:
            spec["namespaceSelector"] = {"matchLabels": {"tier": "gold"}}
        if source.random() < 0.3:
            spec["objectSelector"] = {"matchLabels": {kinds.APP: "alpha"}}
        if source.random() < 0.3:
            spec["regions"] = [source.choice(REGIONS[1:])]
        if source.random() < 0.2:
            spec["clusters"] = [source.choice(CLUSTERS)]
        return SetUniverse(at, source.choice(UNIVERSE), spec)

    def label(self, at: float) -> LabelNamespace:
        """A namespace gets other labels."""
        source = self._source
        labels = dict(source.choice(LABELS))
        return LabelNamespace(at, self._cluster(), source.choice(NAMESPACES), labels)

    def move(self, at: float) -> MoveCluster:
        """A cluster gets another region."""
        return MoveCluster(at, self._cluster(), self._source.choice(REGIONS))

    def policy(self, at: float) -> SetPolicy:
        """A namespace is treated otherwise."""
        source = self._source
        spec = source.choice(POLICIES)
        return SetPolicy(at, self._cluster(), source.choice(NAMESPACES), spec)

    def kill(self, at: float) -> Kill:
        """A replica is killed."""
        return Kill(at, self._replica(), self._source.choice((0.1, 1.0, 6.0)))

    def lease(self, at: float) -> Lease:
        """Others believe to be preferred, or to settle."""
        holders, settlers = (
            tuple(replica for replica in range(self._replicas) if self._source.random() < 0.5)
            for _ in range(2)
        )
        return Lease(at, holders, settlers)

    def clock(self, at: float) -> Clock:
        """A clock is wrong."""
        return Clock(at, self._replica(), self._source.uniform(-50.0, 50.0))

    def stall(self, at: float) -> Stall:
        """Watches stand still."""
        source = self._source
        seconds = source.choice((2.0, 8.0, 30.0))
        return Stall(at, self._replica(), seconds, source.random() < 0.5)

    def lists(self, at: float) -> Lists:
        """Lists and reads are slow, or fail."""
        source = self._source
        return Lists(at, self._replica(), source.choice((0.1, 2.0, 20.0)), source.choice((0, 0.5)))

    def storm(self, at: float) -> Storm:
        """The way to the log is bad."""
        source = self._source
        trouble = source.choice((0.05, 0.3, 0.6))
        return Storm(at, source.choice((2.0, 10.0)), trouble, source.choice((0.0, 0.3)))

    def partition(self, at: float) -> Partition:
        """A replica cannot reach the log."""
        return Partition(at, self._replica(), self._source.choice((1.0, 5.0, 12.0)))

    def cut_link(self, at: float) -> CutLink:
        """A cluster cannot reach the log."""
        return CutLink(at, self._cluster(), self._source.choice((3.0, 12.0, 40.0)))

    def snapshot(self, at: float) -> Snapshot:
        """A replica saves a snapshot."""
        return Snapshot(at, self._replica())

    def _cluster(self) -> int:
        return self._source.randrange(len(CLUSTERS))

    def _pick(self) -> int:
        return self._source.randrange(_PICKS)

    def _replica(self) -> int:
        return self._source.randrange(self._replicas)

    def _memory(self) -> int:
        return self._source.choice((1_000, 2_000, 4_000, 8_000))

    def _ending(self) -> Ending:
        source = self._source
        return Ending.STORED if source.random() < 0.55 else source.choice(list(Ending))
