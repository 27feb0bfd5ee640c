"""Configuration paths: the webhook configurations at the API server, and their usual name."""

from typing import Final

API: Final = "admissionregistration.k8s.io/v1"
NAME: Final = "gpuledger"
"""Name of both configurations unless settings give another one."""

MUTATING: Final = "MutatingWebhookConfiguration"
VALIDATING: Final = "ValidatingWebhookConfiguration"


def path(kind: str, name: str) -> str:
    """Return the path of a configuration of one of the two kinds."""
    return f"/apis/{API}/{kind.lower()}s/{name}"
