"""Watch recorder: the events of varied pods in both encodings, as a real API server sends them.

`PYTHONPATH=tests KUBEBUILDER_ASSETS=… python -m tests.e2e.harness.watch_recorder` writes them to
`tests/fixtures/pods`, for the tests without an API server.
"""

import asyncio
import os
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import Final

from ledger.kube.api.api_resources import PODS
from ledger.kube.client.api_client import JSON, ApiClient
from ledger.kube.watch.watch_encodings import ACCEPT_PROTOBUF
from tests.e2e.conftest import ASSETS_VARIABLE, _connected
from tests.e2e.harness import own_control_plane
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.objects import varied_pods

FOLDER: Final = Path(__file__).parents[2] / "fixtures" / "pods"
ACCEPTED: Final = {"watch.json": JSON, "watch.pb": ACCEPT_PROTOBUF}
WATCHED_SECONDS: Final = "2"


async def recorded(cluster: Cluster, client: ApiClient, namespace: str) -> dict[str, bytes]:
    """Make varied pods; return the watch of all that happened to them, by the name of its file."""
    path = PODS.collection(namespace)
    listed = await cluster.must("GET", path)
    await varied_pods.make(cluster, namespace)
    since = {
        "watch": "1",
        "resourceVersion": listed["metadata"]["resourceVersion"],
        "timeoutSeconds": WATCHED_SECONDS,
    }
    return {name: await _watched(client, path, since, accept) for name, accept in ACCEPTED.items()}


async def _watched(client: ApiClient, path: str, since: dict[str, str], accept: str) -> bytes:
    async with aclosing(await client.watch(path, since, accept)) as answer:
        return b"".join([chunk async for chunk in answer.chunks()])


async def _record(plane: ControlPlane) -> None:
    async with (
        _connected(plane) as cluster,
        await ApiClient.connect(plane.kubeconfig(ADMIN)) as client,
    ):
        for name, content in (await recorded(cluster, client, "default")).items():
            (FOLDER / name).write_bytes(content)


def _main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        own_control_plane.control_plane(Path(os.environ[ASSETS_VARIABLE]), Path(folder)) as plane,
    ):
        asyncio.run(_record(plane))


if __name__ == "__main__":
    _main()
