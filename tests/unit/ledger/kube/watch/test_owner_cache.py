"""Cached owners of pods."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest

from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_ports import Change, Changed, Interrupted, Listed, Reached
from ledger.kube.api.objects import Workload
from ledger.kube.watch import owner_cache
from ledger.kube.watch.owner_cache import CachedOwner, OwnerCache

SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
JOBS = Resource("batch", "v1", "jobs", "Job")


def replicas(_: Resource, seen: Workload) -> int:
    return (seen.spec or {}).get("replicas", 0)


def body(name: str, uid: str = "", version: int = 1, replicas: int = 3) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u-web"}
    labels = {"app": "web", "team": "red", "app.kubernetes.io/part-of": "shop", "tier": name}
    return {
        "metadata": {
            "name": name,
            "namespace": "red",
            "uid": uid or f"u-{name}",
            "resourceVersion": str(version),
            "generation": 4,
            "labels": labels,
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {
            "replicas": replicas,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "x", "args": ["-v"] * 20}]},
            },
        },
    }


@pytest.fixture
def parents() -> OwnerCache[int]:
    return OwnerCache(replicas)


def seen(
    parents: OwnerCache[int], name: str, resource: Resource = SETS, **parts: Any
) -> CachedOwner[int]:
    return parents.parent_of(resource, msgspec.convert(body(name, **parts), Workload))


def changed(parent: CachedOwner[int], *, deleted: bool = False) -> Changed[CachedOwner[int]]:
    return Changed(parent.version, parent, deleted)


async def test_an_object_is_found_by_uid_and_by_name(parents):
    await parents.feed(SETS, Listed(5, [seen(parents, "a", version=3)]))
    parent = parents.get("u-a")
    assert parent is parents.by_name(SETS, "red", "a")
    assert (parent.name, parent.version, parent.generation, parent.digest) == ("a", 3, 4, 3)
    assert parent.controller.uid == "u-web"
    assert parent.labels["team"] == "red"
    assert parents.get("u-b") is None
    assert parents.by_name(SETS, "blue", "a") is None
    assert parents.by_name(JOBS, "red", "a") is None


async def test_a_change_replaces_and_a_deletion_removes(parents):
    await parents.feed(SETS, changed(seen(parents, "a")))
    await parents.feed(SETS, changed(seen(parents, "a", version=2, replicas=9)))
    assert parents.get("u-a").digest == 9
    await parents.feed(SETS, changed(seen(parents, "a", version=3), deleted=True))
    assert parents.get("u-a") is None
    assert parents.by_name(SETS, "red", "a") is None


async def test_an_older_change_does_not_undo_a_newer_one(parents):
    await parents.feed(SETS, changed(seen(parents, "a", version=7, replicas=9)))
    await parents.feed(SETS, changed(seen(parents, "a", version=5)))
    assert parents.get("u-a").version == 7


async def test_a_list_does_not_undo_a_newer_change(parents):
    await parents.feed(SETS, changed(seen(parents, "a", version=7)))
    await parents.feed(SETS, Listed(8, [seen(parents, "a", version=5)]))
    assert parents.get("u-a").version == 7


async def test_a_name_that_is_used_again_leads_to_the_new_object(parents):
    await parents.feed(SETS, changed(seen(parents, "a", uid="old")))
    await parents.feed(SETS, changed(seen(parents, "a", uid="new", version=3)))
    await parents.feed(SETS, changed(seen(parents, "a", uid="old", version=2), deleted=True))
    assert parents.by_name(SETS, "red", "a").uid == "new"
    assert parents.get("old") is None


async def test_a_list_forgets_what_is_gone_of_its_resource_alone(parents):
    await parents.feed(JOBS, Listed(1, [seen(parents, "j", JOBS)]))
    await parents.feed(SETS, Listed(1, [seen(parents, name) for name in "abc"]))
    await parents.feed(SETS, Listed(9, [seen(parents, name) for name in "cd"]))
    assert [bool(parents.get(f"u-{name}")) for name in "abcdj"] == [False, False, True, True, True]
    assert len(parents) == 3


async def test_a_full_cache_turns_away_what_is_new_and_keeps_up_with_what_it_has(parents):
    small, turned_away = OwnerCache(replicas, owners_max=2), []
    small.on_rejected = lambda: turned_away.append(1)
    await small.feed(SETS, Listed(1, [seen(small, name) for name in "abc"]))
    assert (len(small), len(turned_away)) == (2, 1)
    await small.feed(SETS, changed(seen(small, "a", version=2)))
    assert small.get("u-a").version == 2
    await small.feed(SETS, changed(seen(small, "a", version=3), deleted=True))
    await small.feed(SETS, changed(seen(small, "c", version=4)))
    assert small.get("u-c").version == 4
    assert (len(small), len(turned_away)) == (2, 1)


async def test_resource_is_not_current_when_its_watch_is_interrupted(parents):
    assert not parents.is_current(SETS)
    await parents.feed(SETS, Listed(1, []))
    assert parents.is_current(SETS)
    assert not parents.is_current(JOBS)
    await parents.feed(SETS, Interrupted("no answer"))
    assert not parents.is_current(SETS)
    await parents.feed(SETS, Reached(4))
    assert parents.is_current(SETS)


async def test_a_long_list_lets_others_have_their_turn(parents, monkeypatch):
    monkeypatch.setattr(owner_cache, "STRIDE", 10)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    await parents.feed(SETS, Listed(1, [seen(parents, str(n)) for n in range(100)]))
    running.cancel()
    assert turns >= 9


class Told:
    """A cluster that yields prepared changes, and then signals the end."""

    def __init__(self, *changes: Change[Workload]) -> None:
        self._changes = changes
        self.done = asyncio.Event()

    async def watch_filtered(
        self, resource: Resource, keep: Callable[[Workload], Any]
    ) -> AsyncGenerator[Change[Any], None]:
        assert resource == SETS
        for change in self._changes:
            if isinstance(change, Listed):
                yield Listed(change.version, [keep(workload) for workload in change.objects])
            else:
                yield Changed(change.version, keep(change.object), change.deleted)
        self.done.set()
        await asyncio.Event().wait()


async def test_followed_resource_is_cached_when_changes_arrive(parents):
    a, b = (msgspec.convert(body(name), Workload) for name in "ab")
    cluster = Told(Listed(1, [a]), Changed(2, b), Changed(3, a, deleted=True))
    following = asyncio.create_task(parents.follow(cluster, SETS))
    await asyncio.wait_for(cluster.done.wait(), 10)
    following.cancel()
    assert (len(parents), parents.get("u-b").digest) == (1, 3)


async def test_an_object_costs_about_a_kilobyte_however_large_its_spec(parents):
    count = 2_000
    bodies = [msgspec.json.encode(body(f"web-{n:010d}")) for n in range(count)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [
            parents.parent_of(SETS, msgspec.json.decode(encoded, type=Workload))
            for encoded in bodies
        ]
        await parents.feed(SETS, Listed(1, kept))
        del kept
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / count < 1_300


async def test_objects_with_large_labels_are_remembered_up_to_a_bound_of_bytes():
    turned_away = []
    parents = OwnerCache(replicas, bytes_max=4_000_000)
    parents.on_rejected = lambda: turned_away.append(1)
    small = seen(parents, "small")
    await parents.feed(SETS, changed(small))
    for number in range(20):
        large = msgspec.structs.replace(
            small, uid=f"u-{number}", name=f"n-{number}", labels={"a": "x" * 1_000_000}
        )
        await parents.feed(SETS, changed(large))
    assert (len(parents), len(turned_away)) == (4, 17)
    assert parents.get("u-small") is not None
    for number in range(3):
        parent = parents.get(f"u-{number}")
        assert parent is not None
        await parents.feed(SETS, changed(parent, deleted=True))
    await parents.feed(SETS, changed(large))
    assert parents.get("u-19") is large, "what is forgotten makes room"


async def test_an_object_that_grew_beyond_the_bound_is_not_remembered_as_it_was():
    parents = OwnerCache(replicas, bytes_max=10_000)
    small = seen(parents, "a")
    await parents.feed(SETS, changed(small))
    grown = msgspec.structs.replace(small, version=2, labels={"a": "x" * 20_000})
    await parents.feed(SETS, changed(grown))
    assert parents.get("u-a") is None
    assert parents.by_name(SETS, "red", "a") is None
