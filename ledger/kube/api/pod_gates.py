"""Pod gates: the scheduling gate that keeps a pod pending until its demand is reserved."""

from typing import Final

from ledger.kube.api.objects import PodSpec

GATE: Final = "gpuledger.io/quota"
"""Set by the mutating webhook where pods wait for quota, removed when the quota allows them."""


def is_gated(spec: PodSpec) -> bool:
    """Return whether a pod still waits for quota."""
    return any(gate.name == GATE for gate in spec.scheduling_gates or ())
