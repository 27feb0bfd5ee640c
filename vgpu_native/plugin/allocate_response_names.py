"""Names in the response to `Allocate` by which the reader of the checkpoint finds its parts."""

from typing import Final

MARK: Final = "gpuledger.io/allocation"
"""The annotation of a response that names its allocation."""

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
"""The variable that names the cards to NVIDIA's container runtime."""

LIMITS_AT: Final = "/etc/gpuledger/limits"
"""The path of the limits page in the container."""
