"""Managed resources: what a kube-scheduler leaves to the extender.

A scheduler asks the extender about pods that request a managed resource, and does not look for
these resources on nodes. So each resource of a vendor whose cards are placed has to be among them:
no node offers the others, and a pod that requests one would stay Pending. Resources of a vendor
whose cards are only counted must not be among them: the scheduler itself counts what nodes offer.
"""

from collections.abc import Iterable

import msgspec

from ledger.kube.hami import annotation_keys
from ledger.kube.vendors.vendors import Vendor


class ManagedResource(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of `managedResources` of a KubeSchedulerConfiguration's extender."""

    name: str
    ignored_by_scheduler: bool = True


def is_placed(vendor: Vendor) -> bool:
    """Return whether nodes announce single cards of a vendor, so that pods are placed on them."""
    return vendor.name in annotation_keys.VENDOR_ANNOTATIONS


def counted_only(vendors: Iterable[Vendor]) -> tuple[str, ...]:
    """Return the names of the vendors that quotas count and the extender places on no card."""
    return tuple(vendor.name for vendor in vendors if not is_placed(vendor))


def managed_resources(vendors: Iterable[Vendor]) -> tuple[ManagedResource, ...]:
    """Return the resources that a scheduler of these vendors' cards leaves to the extender."""
    names = (
        name
        for vendor in vendors
        if is_placed(vendor)
        for name in (*vendor.names(), vendor.priority)
        if name
    )
    return tuple(ManagedResource(name) for name in dict.fromkeys(names))
