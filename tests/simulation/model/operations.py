"""Operations: the possible events of a run, as plain data, so that a script can be shortened.

`cluster` is a number, modulo the number of clusters of the run.
"""

from enum import Enum

import msgspec


class Ending(Enum):
    """The outcome of a request after this webhook allowed it."""

    STORED = "stored"
    DENIED_BY_WEBHOOK = "another webhook denies"
    DENIED_BY_QUOTA = "the native quota denies"
    LOST = "etcd fails, nothing is written"
    UNKNOWN = "etcd fails, but it is written"
    LATE = "etcd fails, and it is written later"
    BEYOND = "etcd fails, and it is written beyond every bound"
    CLIENT_GONE = "the client is gone before the answer"
    ANSWER_LOST = "the answer of the webhook is lost"


class Deletion(Enum):
    """The fate of the objects that a deleted object controls."""

    BACKGROUND = "it goes later"
    FOREGROUND = "it goes first"
    ORPHAN = "it stays"


class Operation(msgspec.Struct, frozen=True, tag=True):
    """Something that happens at `at` virtual seconds."""

    at: float


class Create(Operation, frozen=True):
    """A pod is posted: `name` empty means generated, with so many collisions before it fits.

    With `forged` it names an object that exists as its controller, which has not made it. With 100
    `cores` it wants its cards alone. With `copies`, so many pods are posted at once in its place,
    each a copy of what a dry run showed. It uses a resource claim of `template`, and `claims` by
    name.
    """

    cluster: int
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
    app: str = ""
    priority: str = ""
    forged: bool = False
    cores: int = 0
    copies: int = 0
    template: str = ""
    claims: tuple[str, ...] = ()


class Update(Operation, frozen=True):
    """Clients write a pod at the same time, each with its own memory; 0 changes a label only.

    Those that are refused by others try again `rounds` times, the last time with `last`.
    """

    cluster: int
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

    cluster: int
    pick: int
    phase: str


class Delete(Operation, frozen=True):
    """A pod is deleted, confirmed by the kubelet after `confirm` seconds, negative for never."""

    cluster: int
    pick: int
    grace: int
    confirm: float


class CreateRoot(Operation, frozen=True):
    """An object that makes `count` pods is posted; `kind` is its resource with the group.

    With `forged` it names an object that exists as its controller, which has not made it. Its pods
    use resource claims of `template`.
    """

    cluster: int
    namespace: str
    kind: str
    name: str
    count: int
    memory: int
    ending: Ending
    late: float = 0.0
    retries: int = 0
    dry_run: bool = False
    unreviewed: bool = False
    app: str = ""
    priority: str = ""
    forged: bool = False
    template: str = ""


class ChangeRoot(Operation, frozen=True):
    """Clients change an object that makes pods at the same time, each to its own count.

    `memory` of a pod, `app` and `suspend` change with it unless they are 0, empty and None. With
    `scale`, where the kind has one, every other client changes the count alone, through the scale
    subresource.
    """

    cluster: int
    pick: int
    counts: tuple[int, ...]
    ending: Ending
    memory: int = 0
    app: str = ""
    suspend: bool | None = None
    scale: bool = False
    stale: bool = False
    repeat: bool = True
    late: float = 0.0
    dry_run: bool = False


class Progress(Operation, frozen=True):
    """A Job's status reports so many succeeded pods, or that the Job is over."""

    cluster: int
    pick: int
    succeeded: int
    complete: bool = False


class DeleteRoot(Operation, frozen=True):
    """An object that makes pods is deleted."""

    cluster: int
    pick: int
    deletion: Deletion


class SetQuota(Operation, frozen=True):
    """A ResourceQuota is written; with a `priority` it counts pods of that class alone."""

    cluster: int
    namespace: str
    name: str
    hard: dict[str, str]
    priority: str = ""


class DropQuota(Operation, frozen=True):
    """A ResourceQuota is deleted."""

    cluster: int
    namespace: str
    name: str


class SetUniverse(Operation, frozen=True):
    """A UniverseResourceQuota is written, with this spec."""

    name: str
    spec: dict[str, object]


class DropUniverse(Operation, frozen=True):
    """A UniverseResourceQuota is deleted."""

    name: str


class LabelNamespace(Operation, frozen=True):
    """A namespace gets these labels and no others."""

    cluster: int
    namespace: str
    labels: dict[str, str]


class MoveCluster(Operation, frozen=True):
    """A cluster's services are started again, with another region in their settings."""

    cluster: int
    region: str


class SetPolicy(Operation, frozen=True):
    """The LedgerPolicy of a namespace is written, with this in its spec, or deleted with None."""

    cluster: int
    namespace: str
    spec: dict[str, object] | None


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


class CutLink(Operation, frozen=True):
    """No replica of a cluster can reach the log for a while."""

    cluster: int
    seconds: float


class Snapshot(Operation, frozen=True):
    """A replica saves a snapshot after its next record."""

    replica: int


class SetNode(Operation, frozen=True):
    """A node is created or changed: it announces these cards, None for no annotation at all."""

    cluster: int
    name: str
    cards: tuple["CardSpec", ...] | None
    keeper: str
    ready: bool = True


class CardSpec(msgspec.Struct, frozen=True):
    """A card as a node announces it: MiB, and how many containers may share it."""

    uuid: str
    memory: int
    slots: int
    healthy: bool = True
    cordoned: bool = False


class DropNode(Operation, frozen=True):
    """A node is deleted; its pods stay."""

    cluster: int
    name: str


class PlaceByHami(Operation, frozen=True):
    """Another scheduler binds a pod, with HAMi's annotations, to a card that may be full."""

    cluster: int
    pick: int
    node: int
    card: int


class Annotate(Operation, frozen=True):
    """Another writer puts another card into the annotations of a pod that is bound."""

    cluster: int
    pick: int
    card: int


class ClaimCards(Operation, frozen=True):
    """Cards are claimed for a pending pod, and the pods on them are deleted."""

    cluster: int
    pick: int
    node: int
    card: int


class SharedCard(msgspec.Struct, frozen=True):
    """A card that resource claims share: its MiB, and the steps in which it gives them."""

    memory: int
    step: int


class SetSlice(Operation, frozen=True):
    """The ResourceSlice of a node is written, with these cards."""

    cluster: int
    node: str
    cards: tuple[SharedCard, ...]


class SetTemplate(Operation, frozen=True):
    """A ResourceClaimTemplate is replaced by one that asks for so many MiB; None deletes it."""

    cluster: int
    namespace: str
    name: str
    memory: int | None


class CreateClaim(Operation, frozen=True):
    """A resource claim is posted that asks for so many MiB of each of `count` cards."""

    cluster: int
    namespace: str
    name: str
    memory: int
    count: int
    ending: Ending
    late: float = 0.0
    retries: int = 0
    unreviewed: bool = False
    app: str = ""


class DeleteClaim(Operation, frozen=True):
    """A resource claim is deleted, which also may have been generated for a pod."""

    cluster: int
    pick: int
