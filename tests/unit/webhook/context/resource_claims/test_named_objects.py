"""Templates and classes are cached from a watch, and read where the watch lacks them."""

import asyncio

import msgspec
import pytest
from support.claims.claim_reviews import claim_template
from support.fakes.owner_cluster import Manifest, OwnerCluster

from ledger.kube.api.api_resources import CLAIM_TEMPLATES
from ledger.kube.api.cluster_errors import ClusterUnavailable, NotServed
from ledger.kube.api.cluster_ports import Changed, Interrupted, Listed, Reached
from ledger.kube.api.objects import Workload
from webhook.context.resource_claims import named_objects
from webhook.context.resource_claims.named_objects import NOT_LISTED, Kept, NamedObjects


def spec_of(seen: Workload) -> tuple[str, int]:
    text = str(seen.spec)
    if "broken" in text:
        raise ValueError("broken")
    return text, len(text)


def cache(objects_max: int = 100, bytes_max: int = 10**6) -> NamedObjects[str]:
    return NamedObjects(CLAIM_TEMPLATES, spec_of, objects_max=objects_max, bytes_max=bytes_max)


def kept(known: NamedObjects[str], manifest: Manifest) -> Kept[str]:
    return known.kept(msgspec.convert(manifest, Workload))


def far() -> float:
    return asyncio.get_running_loop().time() + 1.0


def test_watch_lists_changes_and_removes() -> None:
    known = cache()
    assert known.problem == NOT_LISTED
    known.take(Listed(1, [kept(known, claim_template("a")), kept(known, claim_template("b"))]))
    assert known.listed.is_set()
    assert "'8Gi'" in (known.get("team", "a") or "")
    version = known.version
    known.take(Changed(2, kept(known, claim_template("a", gi=4))))
    known.take(Changed(3, kept(known, claim_template("b")), deleted=True))
    assert "'4Gi'" in (known.get("team", "a") or "")
    assert known.get("team", "b") is None
    assert known.version > version
    known.take(Listed(4, []))
    assert (len(known), known.is_complete) == (0, True)


def test_interrupted_watch_keeps_objects_and_is_not_complete() -> None:
    known = cache()
    known.take(Listed(1, [kept(known, claim_template("a"))]))
    known.take(Interrupted("forbidden"))
    assert (known.problem, known.is_complete) == ("forbidden", False)
    assert known.get("team", "a") is not None
    known.take(Reached(2))
    assert known.is_complete


def test_resource_that_is_not_served_has_no_objects() -> None:
    known = cache()
    known.take(Listed(1, [kept(known, claim_template("a"))]))
    known.take(Interrupted("not served", absent=True))
    assert (known.is_served, known.problem, len(known)) == (False, "", 0)
    known.take(Listed(2, []))
    assert known.is_served


def test_object_that_cannot_be_read_is_as_good_as_missing() -> None:
    known = cache()
    odd = {**claim_template("odd"), "spec": {"broken": True}}
    known.take(Listed(1, [kept(known, odd)]))
    assert known.get("team", "odd") is None


@pytest.mark.parametrize(("objects_max", "bytes_max"), [(1, 10**6), (100, 300)])
def test_full_cache_rejects_objects_and_is_not_complete(objects_max: int, bytes_max: int) -> None:
    known = cache(objects_max, bytes_max)
    both = [kept(known, claim_template(name)) for name in ("a", "b")]
    known.take(Listed(1, both))
    assert (len(known), known.is_complete) == (1, False)
    known.take(Changed(2, both[0], deleted=True))
    known.take(Changed(3, both[1]))
    assert known.get("team", "b") is not None


async def test_object_is_read_once_while_the_watch_lacks_it() -> None:
    known, cluster = cache(), OwnerCluster(claim_template("a"))
    assert await known.ensure(cluster, "team", "a", far())
    assert await known.ensure(cluster, "team", "a", far())
    assert not await known.ensure(cluster, "team", "other", far())
    assert not await known.ensure(None, "team", "other", far())
    assert [name for _, name in cluster.asked] == ["a", "other"]
    assert "a" in known.items()


async def test_read_object_is_used_for_seconds_and_yields_to_the_watch() -> None:
    known, cluster = cache(), OwnerCluster(claim_template("a"))
    await known.ensure(cluster, "team", "a", far())
    known.take(Changed(2, kept(known, claim_template("a", gi=4))))
    assert "'4Gi'" in (known.get("team", "a") or "")
    known.take(Changed(3, kept(known, claim_template("a")), deleted=True))
    assert known.get("team", "a") is None
    await known.ensure(cluster, "team", "a", far())
    await asyncio.sleep(named_objects.READ_SECONDS + 1)
    assert known.get("team", "a") is None
    assert known.items() == {}


async def test_read_objects_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_objects, "READ_MAX", 2)
    known = cache()
    cluster = OwnerCluster(*(claim_template(name) for name in ("a", "b", "c")))
    for name in ("a", "b", "c"):
        await known.ensure(cluster, "team", name, far())
    assert sorted(known.items()) == ["b", "c"]


async def test_read_ends_at_its_deadline_and_passes_errors_on() -> None:
    known, cluster = cache(), OwnerCluster(claim_template("a"))
    cluster.silent = True
    with pytest.raises(TimeoutError):
        await known.ensure(cluster, "team", "a", far())
    cluster.silent, cluster.failing = False, ClusterUnavailable("down")
    with pytest.raises(ClusterUnavailable):
        await known.ensure(cluster, "team", "a", far())
    cluster.failing = NotServed("resource.k8s.io")
    assert not await known.ensure(cluster, "team", "a", far())
