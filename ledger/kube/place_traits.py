"""The traits of places: what quotas select namespaces and clusters by."""

from collections.abc import Mapping

from ledger.core import traits


def of_namespace(name: str, labels: Mapping[str, str] | None) -> str:
    """Return the traits of a namespace, as one text."""
    return traits.text_of({**(labels or {}), traits.NAME: name})


def of_cluster(name: str, region: str, labels: Mapping[str, str] | None) -> str:
    """Return the traits of a cluster, as one text; `region` may be empty."""
    items = {**(labels or {}), traits.NAME: name}
    if region:
        items[traits.REGION] = region
    return traits.text_of(items)
