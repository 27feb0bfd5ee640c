"""Namespace traits: the traits by which quotas select namespaces and clusters."""

from collections.abc import Mapping

from ledger.core.model import traits
from ledger.core.model.traits import UNREAD
from ledger.kube.requests.pod_traits import RECORDED_MAX, digest_of


def of_namespace(name: str, labels: Mapping[str, str] | None) -> str:
    """Return the traits of a namespace, as one text."""
    return _fitting(labels, {traits.NAME: name})


def of_cluster(name: str, region: str, labels: Mapping[str, str] | None) -> str:
    """Return the traits of a cluster, as one text; `region` may be empty."""
    own = {traits.NAME: name}
    if region:
        own[traits.REGION] = region
    return _fitting(labels, own)


def _fitting(labels: Mapping[str, str] | None, own: dict[str, str]) -> str:
    """Return the text of the labels and the other items; only a digest of too many labels."""
    text = traits.text_of({**(labels or {}), **own})
    return text if len(text) <= RECORDED_MAX else traits.text_of({**own, UNREAD: digest_of(text)})
