"""HAMi's lock of a node: who gets it, and whom it holds up."""

from datetime import UTC, datetime

import pytest

from extender.bind.node_lock_for_bind import HamiNodeLock
from ledger.kube.api.cluster_errors import VersionConflict
from ledger.kube.api.objects import ApiNode, ObjectMeta, Pod
from ledger.kube.hami import annotation_keys

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
OURS = "2026-03-01T12:00:00+00:00,team,ours"


def pod(name: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="team"))


class OneNode:
    """A cluster of one node and the pods `ours` and `theirs`; `changed` as it is written to."""

    def __init__(self, lock: str | None, *, changed: bool = False) -> None:
        self.lock = lock
        self.changed = changed

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        return pod(name) if (namespace, name) in {("team", "ours"), ("team", "theirs")} else None

    async def get_node(self, name: str) -> ApiNode | None:
        annotations = {annotation_keys.LOCK: self.lock} if self.lock is not None else None
        return ApiNode(ObjectMeta(name="n1", resource_version="7", annotations=annotations))

    async def patch_node_annotations(self, name, changes, version="") -> None:
        assert (name, version) == ("n1", "7")
        if self.changed:
            raise VersionConflict("changed")
        self.lock = changes[annotation_keys.LOCK]


def locking(cluster: OneNode) -> HamiNodeLock:
    return HamiNodeLock(cluster, NOW.timestamp)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "lock",
    [
        None,
        "nonsense",
        "2026-03-01T11:59:00Z,team,ours",
        "2026-03-01T11:54:59Z,team,theirs",
        "2026-03-01T11:54:59Z",
        "2026-03-01T11:59:00Z,team,gone",
    ],
)
async def test_lock_without_a_living_holder_is_taken(lock: str | None) -> None:
    cluster = OneNode(lock)
    assert await locking(cluster).lock(pod("ours"), "n1") == ""
    assert cluster.lock == OURS


@pytest.mark.parametrize("lock", ["2026-03-01T11:59:00Z,team,theirs", "2026-03-01T11:59:00Z"])
async def test_unexpired_lock_blocks_other_pods_even_without_a_name(lock: str) -> None:
    cluster = OneNode(lock)
    assert "node n1 is locked for" in await locking(cluster).lock(pod("ours"), "n1")
    assert cluster.lock == lock


async def test_a_node_that_changes_meanwhile_is_not_locked() -> None:
    cluster = OneNode(None, changed=True)
    assert "changed meanwhile" in await locking(cluster).lock(pod("ours"), "n1")
    assert cluster.lock is None


async def test_only_the_own_lock_is_given_back() -> None:
    mine, other = OneNode(OURS), OneNode("2026-03-01T11:59:00Z,team,theirs")
    await locking(mine).unlock(pod("ours"), "n1")
    await locking(other).unlock(pod("ours"), "n1")
    assert mine.lock is None
    assert other.lock == "2026-03-01T11:59:00Z,team,theirs"
