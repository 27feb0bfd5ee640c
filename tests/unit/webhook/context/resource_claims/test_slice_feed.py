"""The supply of devices follows the watch of slices."""

import msgspec
import pytest
from support.claims.claim_reviews import DRIVER, resource_slice
from support.claims.device_supplies import counted_devices
from support.fakes.owner_cluster import Manifest

from ledger.kube.api.cluster_ports import Changed, Interrupted, Listed, Reached
from ledger.kube.api.objects import Workload
from ledger.kube.resource_claims.device_classes import class_mapping
from ledger.kube.resource_claims.device_supply import DeviceSupply
from webhook.context.resource_claims import slice_feed
from webhook.context.resource_claims.named_objects import NOT_LISTED
from webhook.context.resource_claims.slice_feed import KeptSlice, SliceFeed, kept_slice


def kept(manifest: Manifest) -> KeptSlice:
    return kept_slice(msgspec.convert(manifest, Workload))


@pytest.fixture
def feed() -> SliceFeed:
    return SliceFeed(DeviceSupply(class_mapping()))


def pools(feed: SliceFeed) -> list[str]:
    return sorted({device.pool for device in counted_devices(feed.supply, DRIVER)})


def test_slices_are_listed_changed_and_dropped(feed: SliceFeed) -> None:
    assert feed.problem == NOT_LISTED
    feed.take(Listed(1, [kept(resource_slice("n1")), kept(resource_slice("n2"))]))
    assert feed.listed.is_set()
    assert (pools(feed), feed.problem) == (["n1", "n2"], "")
    feed.take(Changed(2, kept(resource_slice("n1", cards=1))))
    assert len(counted_devices(feed.supply, DRIVER)) == 3
    feed.take(Changed(3, kept(resource_slice("n2")), deleted=True))
    assert pools(feed) == ["n1"]


def test_interrupted_watch_keeps_slices_and_an_absent_one_none(feed: SliceFeed) -> None:
    feed.take(Listed(1, [kept(resource_slice("n1"))]))
    feed.take(Interrupted("forbidden"))
    assert (pools(feed), feed.problem) == (["n1"], "forbidden")
    feed.take(Interrupted("not served", absent=True))
    assert (pools(feed), feed.problem) == ([], "")


def test_slice_that_cannot_be_read_is_dropped_and_reported(feed: SliceFeed) -> None:
    odd = kept({**resource_slice("n1"), "spec": {"devices": 7}})
    feed.take(Listed(1, [odd, kept(resource_slice("n2"))]))
    unread = "1 slices cannot be read, such as n1-slice"
    assert (pools(feed), feed.problem) == (["n2"], unread)
    feed.take(Listed(2, [kept(resource_slice("n1"))]))
    feed.take(Changed(3, odd))
    assert (pools(feed), feed.problem) == ([], unread)


def test_unread_slice_is_reported_until_it_is_read_or_gone(feed: SliceFeed) -> None:
    odd = kept({**resource_slice("n1"), "spec": {"devices": 7}})
    feed.take(Listed(1, [odd]))
    feed.take(Changed(2, kept(resource_slice("n2"))))
    feed.take(Reached(3))
    assert feed.problem.startswith("1 slices cannot be read")
    feed.take(Changed(4, kept(resource_slice("n1"))))
    assert feed.problem == ""
    feed.take(Changed(5, odd))
    feed.take(Changed(6, odd, deleted=True))
    assert feed.problem == ""


def test_slices_are_bounded(feed: SliceFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_feed, "SLICES_MAX", 1)
    both = [kept(resource_slice(name)) for name in ("n1", "n2")]
    feed.take(Listed(1, both))
    assert (pools(feed), feed.problem) == (["n1"], "only 1 of 2 slices are kept")
    feed.take(Changed(2, both[1]))
    assert (pools(feed), feed.problem) == (["n1"], "only 1 of 2 slices are kept")
    feed.take(Changed(3, both[0]))
    assert pools(feed) == ["n1"]
