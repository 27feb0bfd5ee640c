"""Fit question: a pod, the nodes on which it may fit, and the policies of the choice of cards."""

from typing import Final

import msgspec

from extender.fit.node_score_expression import NodeScore
from extender.inventory.card_arrays import Integers
from ledger.kube.requests.device_requests import PodDeviceRequest, Weights

NO_BOUND: Final = -1
"""The memory headroom of a pod whose memory no quota bounds."""

UNUSED_ONLY: Final = "mutex"
"""The card policy of a pod that accepts unused cards only (`commands.Place.alone`)."""


class FitQuestion(msgspec.Struct, frozen=True):
    """Whether a pod fits on nodes, on which cards, and how good that is.

    `rows` are the nodes, as rows of the arrays, each once, in any order. `node_policy`,
    `card_policies` and `weights` are the pod's or else the setting's.
    `memory_room` is how many MiB quotas allow the pod at most, `NO_BOUND` where none does.
    `node_score`, if given, scores the nodes instead of the policy.
    """

    request: PodDeviceRequest
    rows: Integers
    node_policy: str = "binpack"
    card_policies: tuple[str, ...] = ("spread",)
    weights: Weights = Weights()
    memory_room: int = NO_BOUND
    node_score: NodeScore | None = None
