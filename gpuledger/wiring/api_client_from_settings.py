"""API client from settings: with a kubeconfig, or with the service account of the pod."""

from pathlib import Path

from ledger.kube.client.api_client import ApiClient
from ledger.runtime.settings.settings import Settings


async def connect(settings: Settings) -> ApiClient:
    """Read the credentials; nothing is sent yet. Raises ClusterError."""
    return await ApiClient.connect(_kubeconfig(settings))


def _kubeconfig(settings: Settings) -> Path | None:
    """Return the kubeconfig file; None means the service account of the pod."""
    return Path(settings.kubeconfig).expanduser() if settings.kubeconfig else None
