"""Accounts: objects with limits, named by one string each.

* `quota/<cluster>/<namespace>/<name>`: one ResourceQuota object.
* `universe/<name>`: one quota over many namespaces and clusters.
* `card/<cluster>/<node>/<uuid>`: one physical card.

An account has one **line** per limit key. Lines are numbered in the order in which the log opens
them, across all accounts, and a number is never used again: events name lines by number, which
keeps records small and the fold fast.
"""

from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

_KEYS_REMEMBERED_MAX: Final = 1_024
"""Quotas of a whole fleet use the same few keys."""

_KEY_CHARACTERS_MAX: Final = 512
"""Longest key that is remembered; a valid one has at most 327 characters."""


class AccountKind(StrEnum):
    """The kind of object with limits."""

    QUOTA = "quota"
    UNIVERSE = "universe"
    CARD = "card"


class Line(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One limit of one account: its number, its key in the quota, the limit in the key's unit."""

    number: int
    key: str
    limit: int


def quota(cluster: str, namespace: str, name: str) -> str:
    """Name the account of a ResourceQuota."""
    return f"{AccountKind.QUOTA}/{cluster}/{namespace}/{name}"


def universe(name: str) -> str:
    """Name the account of a UniverseResourceQuota."""
    return f"{AccountKind.UNIVERSE}/{name}"


def card(cluster: str, node: str, uuid: str) -> str:
    """Name the account of a physical card."""
    return f"{AccountKind.CARD}/{cluster}/{node}/{uuid}"


def kind(account: str) -> AccountKind:
    """Return the kind of a named account."""
    return AccountKind(account.partition("/")[0])


def parts(account: str) -> tuple[str, str, str]:
    """Return `(cluster, namespace, name)`; a universe has neither cluster nor namespace."""
    if kind(account) is AccountKind.UNIVERSE:
        return "", "", account.partition("/")[2]
    _, cluster, middle, name = account.split("/", 3)
    return cluster, middle, name


def resource_of(key: str) -> str:
    """Return the resource that a quota key limits.

    `limits.nvidia.com/gpumem` and `requests.nvidia.com/gpumem` both limit `nvidia.com/gpumem`,
    because Kubernetes makes requests and limits of an extended resource equal. The two differ for
    `cpu` and `memory`, so there the key itself is the resource.
    """
    return _remembered(key) if len(key) <= _KEY_CHARACTERS_MAX else _resource_of(key)


def _resource_of(key: str) -> str:
    for prefix in ("limits.", "requests."):
        if key.startswith(prefix) and "/" in key:
            return key[len(prefix) :]
    return key


_remembered: Final = lru_cache(maxsize=_KEYS_REMEMBERED_MAX)(_resource_of)
