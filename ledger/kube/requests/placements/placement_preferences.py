"""Placement preferences: the node and card policies in a pod's annotations.

HAMi replaces an unknown value by a default. gpuledger refuses the value, so that a pod never runs
under a policy other than the one in its annotations.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.quoting import shown
from ledger.kube.requests.card_selector_annotations import items_of
from ledger.kube.requests.device_requests import CARD_POLICIES, NODE_POLICIES, Weights

NODE_POLICY: Final = "hami.io/node-scheduler-policy"
CARD_POLICY: Final = "hami.io/gpu-scheduler-policy"
WEIGHTS: Final = "hami.io/device-scoring-weights"
NUMA_BIND: Final = "nvidia.com/numa-bind"

KEYS: Final = frozenset({NODE_POLICY, CARD_POLICY, WEIGHTS, NUMA_BIND})
"""All annotations that are read here."""

WEIGHT_MAX: Final = 1_000_000
"""Largest weight; only the ratios of weights matter."""

_WEIGHT: Final = re.compile(r"\s*(slot|core|memory)\s*=\s*([0-9]{1,7})\s*")
_TRUE: Final = frozenset({"1", "t", "true"})
_FALSE: Final = frozenset({"0", "f", "false"})


class PlacementPreferences(msgspec.Struct, frozen=True):
    """The placement preferences of a pod; the fields are those of `PodDeviceRequest`."""

    numa_bind: bool = False
    node_policy: str = ""
    card_policies: tuple[str, ...] = ()
    weights: Weights | None = None


class _Unclear(Exception):
    """An annotation has an invalid value."""

    def __init__(self, key: str, text: str, *, remedy: str) -> None:
        super().__init__(key)
        self.denial = Denial(
            Reason.INVALID_POLICY,
            f"the annotation {key} is {shown(text)!r}, which is not a known value",
            transient=False,
            remedy=remedy,
            field=f"metadata.annotations[{key}]",
            value=shown(text),
        )


def preferences_of(annotations: Mapping[str, str]) -> PlacementPreferences | Denial:
    """Return the placement preferences of a pod, or the denial of an invalid value.

    Values are read regardless of case. An empty annotation is ignored.
    """
    try:
        node = _words(annotations, NODE_POLICY, NODE_POLICIES)
        if len(node) > 1:
            raise _Unclear(NODE_POLICY, annotations[NODE_POLICY], remedy="Write one word only")
        return PlacementPreferences(
            numa_bind=_truth(annotations, NUMA_BIND),
            node_policy=node[0] if node else "",
            card_policies=_words(annotations, CARD_POLICY, CARD_POLICIES),
            weights=_weights(annotations),
        )
    except _Unclear as unclear:
        return unclear.denial


def _words(annotations: Mapping[str, str], key: str, known: tuple[str, ...]) -> tuple[str, ...]:
    text = annotations.get(key, "")
    words = items_of(text.lower())
    if not all(word in known for word in words):
        raise _Unclear(key, text, remedy=f"Write {' or '.join(known)}, or leave the annotation out")
    return words


def _truth(annotations: Mapping[str, str], key: str) -> bool:
    text = annotations.get(key, "")
    word = text.strip().lower()
    if word and word not in _TRUE | _FALSE:
        raise _Unclear(key, text, remedy="Write true or false, or leave the annotation out")
    return word in _TRUE


def _weights(annotations: Mapping[str, str]) -> Weights | None:
    text = annotations.get(WEIGHTS, "")
    if not text.strip():
        return None
    weights: dict[str, int] = {}
    for item in text.split(",", 3):
        form = _WEIGHT.fullmatch(item)
        if form is None or form[1] in weights or int(form[2]) > WEIGHT_MAX:
            raise _unclear_weights(text)
        weights[form[1]] = int(form[2])
    if len(weights) < 3 or not any(weights.values()):
        raise _unclear_weights(text)
    return Weights(weights["slot"], weights["core"], weights["memory"])


def _unclear_weights(text: str) -> _Unclear:
    return _Unclear(
        WEIGHTS,
        text,
        remedy=f"Write all three as whole numbers from 0 to {WEIGHT_MAX}, at least one of"
        " them above 0, for example slot=1,core=1,memory=3",
    )
