"""Managed resources: the resources that a kube-scheduler leaves to the extender.

A scheduler calls the extender for pods that request a managed resource, and does not look for
these resources on nodes. So every resource of a vendor with placed cards must be managed:
no node offers memory or cores, and a pod that requests them would stay Pending. Resources of a
vendor whose cards are only counted must not be managed, because the scheduler counts them itself.
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
    """Return whether the extender places a vendor's cards, because nodes announce each card."""
    return vendor.name in annotation_keys.VENDOR_ANNOTATIONS


def counted_only(vendors: Iterable[Vendor]) -> tuple[str, ...]:
    """Return the names of the vendors that quotas count and the extender does not place."""
    return tuple(vendor.name for vendor in vendors if not is_placed(vendor))


def managed_resources(vendors: Iterable[Vendor]) -> tuple[ManagedResource, ...]:
    """Return the resources of these vendors that a scheduler leaves to the extender."""
    names = (
        name
        for vendor in vendors
        if is_placed(vendor)
        for name in (*vendor.names(), vendor.priority)
        if name
    )
    return tuple(ManagedResource(name) for name in dict.fromkeys(names))
