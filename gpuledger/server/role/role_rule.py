"""Role rule: whether a replica has the role label, and whether it answers reviews alone.

The Service of the webhooks selects the ready pods that have the label. All replicas have it, until
one of them answers alone; the others then drop it. So the rule fails safe: a replica that misses
the beats of the other one, or reads that the Service does not have it, takes reviews, and several
replicas that take them do no harm.

The rule is a pure function of times, all in seconds of one monotonic clock.
"""

from typing import Final, NamedTuple

MISSED_SECONDS: Final = 1.0
"""Age of the newest beat at which the replica that sent it no longer counts: four beats."""

KEPT_SECONDS: Final = 10.0
"""Time for which beats must have come without a gap before the label is dropped. It is longer than
most steps of a rolling update, so that no label is dropped while the next owner is deleted."""

SETTLED_SECONDS: Final = 3.0
"""Time for which the own pod must have been ready with its label before this replica answers
alone. Meanwhile the endpoints of the Service and the rules of the nodes follow."""

CONFIRMED_SECONDS: Final = 8.0
"""Age of the newest read of the own pod at which this replica no longer answers alone. It is less
than the time after which Kubernetes takes a pod of an unreachable node for unready."""

SURVIVED_SECONDS: Final = 1.0
"""Time for which the own pod must have been ready with its label, and the own connection must have
worked, before the label of the missed replica is removed. So the Service always has an endpoint,
and a replica without a connection removes nothing."""


class SeenPod(NamedTuple):
    """A pod at the API server: when it was read, whether it has the label, and whether it is ready
    and not being deleted."""

    read_at: float
    labelled: bool
    serving: bool


class RoleFacts(NamedTuple):
    """Everything that one replica has read or received at the time `now`.

    `owner` is whether it holds the lease to write, and `ready` whether it is able to answer.
    `beat_by` and `beat_at` are of the newest beat of another replica; empty and None without one,
    and after that replica has handed over. `echoed_at` is when a message of this replica last came
    back to it, None before the first. `pod` is the own pod, and `other` that of the newest beat,
    both None before the first read.
    """

    now: float
    owner: bool
    ready: bool
    beat_by: str
    beat_at: float | None
    echoed_at: float | None
    pod: SeenPod | None
    other: SeenPod | None


class RoleMemory(NamedTuple):
    """The memory of a replica from one step to the next.

    The times are the begin of what has lasted without a gap: beats of another replica, the own pod
    ready with its label, and messages that came back. `followed` is the replica whose beats came
    last, until it has handed over or its label is to be removed.
    """

    fresh_since: float | None = None
    serving_since: float | None = None
    connected_since: float | None = None
    followed: str = ""


class RoleDecision(NamedTuple):
    """Whether the own pod is to have the label, whether this replica answers alone, and the pod of
    another replica whose label is to be removed, empty for none."""

    label: bool
    alone: bool
    remove: str


def decide(memory: RoleMemory, facts: RoleFacts) -> tuple[RoleMemory, RoleDecision]:
    """Return the next memory and the decision."""
    now, pod = facts.now, facts.pod
    fresh = is_recent(facts.beat_at, now)
    serves = pod is not None and _is_selected(pod)
    memory = RoleMemory(
        fresh_since=_since(memory.fresh_since, now, holds=fresh),
        serving_since=_since(memory.serving_since, now, holds=serves),
        connected_since=_since(memory.connected_since, now, holds=is_recent(facts.echoed_at, now)),
        followed=_followed(memory, facts, fresh=fresh),
    )
    remove = memory.followed if not fresh and _survived(memory, now) else ""
    if remove:
        memory = memory._replace(followed="")
    decision = RoleDecision(
        label=_label(memory, facts, fresh=fresh), alone=_is_alone(memory, facts), remove=remove
    )
    return memory, decision


def _followed(memory: RoleMemory, facts: RoleFacts, *, fresh: bool) -> str:
    """Return the replica whose beats are missed once they stop; none after it has handed over."""
    if facts.beat_at is None:
        return ""
    return facts.beat_by if fresh else memory.followed


def _survived(memory: RoleMemory, now: float) -> bool:
    return _lasted(memory.serving_since, now, SURVIVED_SECONDS) and _connected(memory, now)


def _connected(memory: RoleMemory, now: float) -> bool:
    return _lasted(memory.connected_since, now, SURVIVED_SECONDS)


def _is_alone(memory: RoleMemory, facts: RoleFacts) -> bool:
    return (
        facts.owner
        and facts.ready
        and facts.pod is not None
        and facts.now - facts.pod.read_at <= CONFIRMED_SECONDS
        and _lasted(memory.serving_since, facts.now, SETTLED_SECONDS)
    )


def _label(memory: RoleMemory, facts: RoleFacts, *, fresh: bool) -> bool:
    """Return whether the own pod is to have the label.

    Beats alone do not end it: the Service must have the pod that sends them.
    """
    other = facts.other
    if facts.owner or not fresh:
        return True
    if facts.pod is not None and not facts.pod.labelled:
        return other is not None and not _is_selected(other)
    selected = (
        other is not None and _is_selected(other) and facts.now - other.read_at <= CONFIRMED_SECONDS
    )
    return not (selected and _lasted(memory.fresh_since, facts.now, KEPT_SECONDS))


def _is_selected(pod: SeenPod) -> bool:
    return pod.labelled and pod.serving


def is_recent(at: float | None, now: float) -> bool:
    """Return whether a message of this time still counts; None without a message."""
    return at is not None and now - at <= MISSED_SECONDS


def _since(before: float | None, now: float, *, holds: bool) -> float | None:
    if not holds:
        return None
    return now if before is None else before


def _lasted(since: float | None, now: float, seconds: float) -> bool:
    return since is not None and now - since >= seconds
