"""Traits: the properties of objects that quotas select by, and the conditions of selectors.

The traits of a pod, a namespace or a cluster are one text: its items, sorted, joined by commas. A
label is `key=value`. Any other item begins with `!`: `!priority=NAME`, `!terminating`,
`!best-effort`, `!cross-namespace-affinity` of pods, `!name=NAME` of namespaces and clusters,
`!region=NAME` of clusters. Names and labels of Kubernetes hold neither commas nor `=`.

An object with several pod templates has several texts. A selector that matches any of them counts
the object in full.

Only labels by which some account selects are recorded. Each of their keys has a number. The item
`!read=NUMBER` of an object is the highest number whose key was read from the object. A condition on
a key with a higher number counts as met, because the label of the object is unknown. So until the
object is read again, an account may count too much and never too little. Items that are too long
for a record become one item, `!unread=DIGEST`. It meets every condition on a key that is missing.
"""

from collections.abc import Callable, Mapping
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
READ: Final = "!read"
"""The highest number up to which the labels of an object were read; none: 0."""
UNREAD: Final = "!unread"
"""The digest of items that were too long for a record."""

OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
"""The operators of Kubernetes' selectors."""

REMEMBERED_MAX: Final = 8_192
"""Judgements that are cached; the two bounds below limit the size of each."""

REMEMBERED_CHARACTERS_MAX: Final = 512
"""Longest text whose judgement is cached. Users write the labels, so texts have any length."""

REMEMBERED_SELECTION_MAX: Final = 1_024
"""Most characters of conditions whose judgement is cached, all keys and values together."""

_NONE: Final[Traits] = ("",)


class Requirement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One condition on an item: `operator` is one of `OPERATORS`.

    As in Kubernetes, `NotIn` also holds for a text without the key.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Numbered(Requirement, frozen=True, gc=False):
    """A condition on a label whose key has the number `since`."""

    since: int = 0


Selection = tuple[Requirement, ...]
"""Conditions that must all hold; none selects everything."""


class Reach(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The namespaces and clusters that an account covers, now and in the future."""

    clusters: Selection = ()
    namespaces: Selection = ()


def text_of(items: dict[str, str]) -> str:
    """Return the text of items by key; an empty value means a key without a value."""
    return ",".join([f"{key}={value}" if value else key for key, value in sorted(items.items())])


def is_label(key: str) -> bool:
    """Return whether an item's key is that of a label."""
    return not key.startswith("!")


def numbered(selection: Selection, labels: Mapping[str, int]) -> Selection:
    """Return the conditions, those on labels with the numbers of their keys."""
    if not labels:
        return selection
    return tuple(
        Numbered(condition.key, condition.operator, condition.values, labels[condition.key])
        if condition.key in labels
        else condition
        for condition in selection
    )


def is_read(selection: Selection, traits: Traits) -> bool:
    """Return whether all keys of numbered conditions were read from an object."""
    return all(_is_read(selection, text) for text in traits or _NONE)


def is_unread(traits: Traits) -> bool:
    """Return whether any of an object's texts has only a digest of its items."""
    return any(UNREAD in text and UNREAD in _items(text) for text in traits)


def read_up_to(traits: Traits) -> int:
    """Return the highest number up to which labels were read in all texts of an object."""
    return min(int(_items(text).get(READ, "0")) for text in traits or _NONE)


def recorded_up_to(traits: Traits) -> int:
    """Return the highest number up to which labels are recorded, -1 for a digest."""
    return -1 if is_unread(traits) else read_up_to(traits)


def needs(selection: Selection) -> int:
    """Return the highest number up to which labels must be recorded to judge conditions."""
    return max(
        (condition.since for condition in selection if isinstance(condition, Numbered)), default=0
    )


def matches(selection: Selection, traits: Traits) -> bool:
    """Return whether any of an object's texts meets all conditions."""
    return any(_meets(selection, text) for text in traits or _NONE)


def united(left: Traits, right: Traits) -> Traits:
    """Return the texts of both, each once; the empty text counts as a text."""
    if left == right:
        return left
    return tuple(dict.fromkeys((*(left or _NONE), *(right or _NONE))))


def _is_short(selection: Selection) -> bool:
    """Return whether conditions are so short that a cache may keep them."""
    characters = 0
    for condition in selection:
        characters += len(condition.key)
        for value in condition.values:
            characters += len(value) + 1
        if characters > REMEMBERED_SELECTION_MAX:
            return False
    return True


class _Remembered:
    """A judgement of texts, cached where conditions and text are short."""

    def __init__(self, judge: Callable[[Selection, str], bool]) -> None:
        self._judge = judge
        self._remembered = lru_cache(maxsize=REMEMBERED_MAX)(judge)

    def __call__(self, selection: Selection, text: str) -> bool:
        short = len(text) <= REMEMBERED_CHARACTERS_MAX and _is_short(selection)
        return self._remembered(selection, text) if short else self._judge(selection, text)


@_Remembered
def _meets(selection: Selection, text: str) -> bool:
    items = _items(text)
    return all(_is_unknown(condition, items) or _holds(condition, items) for condition in selection)


@_Remembered
def _is_read(selection: Selection, text: str) -> bool:
    items = _items(text)
    return not any(_is_unknown(condition, items) for condition in selection)


def _items(text: str) -> dict[str, str]:
    return dict(item.partition("=")[::2] for item in text.split(",")) if text else {}


def _is_unknown(requirement: Requirement, items: dict[str, str]) -> bool:
    if requirement.key in items:
        return False
    if UNREAD in items:
        return True
    since = requirement.since if isinstance(requirement, Numbered) else 0
    return since > int(items.get(READ, "0"))


def _holds(requirement: Requirement, items: dict[str, str]) -> bool:
    there = requirement.key in items
    if requirement.operator == "Exists":
        return there
    if requirement.operator == "DoesNotExist":
        return not there
    among = there and items[requirement.key] in requirement.values
    return among if requirement.operator == "In" else not among
