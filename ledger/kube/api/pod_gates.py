"""The scheduling gate that keeps a pod waiting until the ledger has reserved what it asks for."""

from typing import Final

from ledger.kube.api.objects import PodSpec

GATE: Final = "gpuledger.io/quota"
"""Set by the mutating webhook where pods wait for room, removed when there is room."""


def is_gated(spec: PodSpec) -> bool:
    """Return whether a pod still waits for room."""
    return any(gate.name == GATE for gate in spec.scheduling_gates or ())
