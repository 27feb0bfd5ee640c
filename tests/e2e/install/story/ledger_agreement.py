"""Whether an installed ledger agrees with its cluster, by the oracle of the end-to-end tests."""

from typing import Any, Final

import aiohttp
from support.oracles.cluster_oracle import ClusterLabels

from tests.e2e.harness.agreement import BUILTIN, Comparison, compare
from tests.e2e.harness.controlplane import ADMIN
from tests.e2e.harness.polling import eventually
from tests.e2e.install.rig.real_cluster import RealCluster

AGREED_SECONDS: Final = 90.0
"""The time until holds are settled, with the settings that the chart has."""

REQUEST_SECONDS: Final = 20.0


class InstalledLedger:
    """The HTTP API of an installed service, read at the address of its Service."""

    def __init__(
        self, cluster: RealCluster, *, namespace: str = "gpuledger", service: str = "gpuledger"
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._service = service

    async def get(self, path: str, **query: str) -> Any:
        """Read from the API. Fails for another status than 200."""
        spec = self._cluster.kubectl.get(self._namespace, f"service/{self._service}")["spec"]
        address = f"https://{spec['clusterIP']}:{spec['ports'][0]['port']}"
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        # The certificate is checked by the API server when it calls the webhook, not here.
        connector = aiohttp.TCPConnector(ssl=False)
        headers = {"Authorization": f"Bearer {self._cluster.plane.token(ADMIN)}"}
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get(address + path, params=query, headers=headers) as response,
        ):
            assert response.status == 200, f"GET {path}: {response.status} {await response.text()}"
            return await response.json()


async def assert_agreement(
    cluster: RealCluster, ledger: InstalledLedger, *namespaces: str, name: str
) -> Comparison:
    """Wait until ledger and cluster agree about namespaces, and no hold is left.

    `name` is the name of the cluster in the service's settings. Quotas over many namespaces have to
    agree, too.
    """
    spaces = frozenset(("", *namespaces))
    async with cluster.connected() as admin:
        return await eventually(
            lambda: compare(
                admin, ledger, spaces, frozenset(), place=ClusterLabels(name), workloads=BUILTIN
            ),
            lambda comparison: comparison.agrees,
            within=AGREED_SECONDS,
            what=f"ledger and cluster agree about {sorted(namespaces)}",
            pause=1.0,
        )
