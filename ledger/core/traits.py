"""Traits: what selecting quotas look at in an object, and the conditions they select by.

The traits of a pod, a namespace or a cluster are one text: its items, sorted, joined by commas. A
label is `key=value`. What is no label begins with `!`: `!priority=NAME`, `!terminating`,
`!best-effort`, `!cross-namespace-affinity` of pods, `!name=NAME` of namespaces and clusters,
`!region=NAME` of clusters. Names and labels of Kubernetes hold neither commas nor `=`.

An object with several pod templates has several texts. Whoever selects any of them counts the
object in full.
"""

from functools import lru_cache
from typing import Final

import msgspec

Traits = tuple[str, ...]
"""The distinct texts of an object, none when it has nothing to select by."""

PRIORITY: Final = "!priority"
TERMINATING: Final = "!terminating"
BEST_EFFORT: Final = "!best-effort"
CROSS_NAMESPACE: Final = "!cross-namespace-affinity"
NAME: Final = "!name"
REGION: Final = "!region"

OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
"""The operators of Kubernetes' selectors."""

_REMEMBERED_MAX: Final = 16_384
_NONE: Final[Traits] = ("",)


class Requirement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One condition on an item: `operator` is one of `OPERATORS`.

    As in Kubernetes, `NotIn` also holds for what does not have the key at all.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()


Selection = tuple[Requirement, ...]
"""Conditions that must all hold; none selects everything."""


class Reach(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which namespaces of which clusters an account covers, now and in the future."""

    clusters: Selection = ()
    namespaces: Selection = ()


def text_of(items: dict[str, str]) -> str:
    """Return the text of items by key; an empty value stands for a key alone."""
    return ",".join([f"{key}={value}" if value else key for key, value in sorted(items.items())])


def matches(selection: Selection, traits: Traits) -> bool:
    """Return whether any of an object's texts meets all conditions."""
    return any(_meets(selection, text) for text in traits or _NONE)


def united(left: Traits, right: Traits) -> Traits:
    """Return the texts of both, each once; to have nothing to select by is a text, too."""
    if left == right:
        return left
    return tuple(dict.fromkeys((*(left or _NONE), *(right or _NONE))))


@lru_cache(maxsize=_REMEMBERED_MAX)
def _meets(selection: Selection, text: str) -> bool:
    items = dict(item.partition("=")[::2] for item in text.split(",")) if text else {}
    return all(_holds(one, items) for one in selection)


def _holds(requirement: Requirement, items: dict[str, str]) -> bool:
    there = requirement.key in items
    if requirement.operator == "Exists":
        return there
    if requirement.operator == "DoesNotExist":
        return not there
    among = there and items[requirement.key] in requirement.values
    return among if requirement.operator == "In" else not among
