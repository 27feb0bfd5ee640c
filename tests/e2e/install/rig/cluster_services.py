"""The process that replaces kube-proxy, cluster DNS and a provisioner of volumes in a rig.

It lists a few kinds several times a second, writes the names for dnsmasq, and loads the forwarding
rules into its own network namespace and into that of each node.
"""

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from tests.e2e.harness.cluster import Cluster
from tests.e2e.install.rig import cluster_dns, network, service_forwarding, volumes

PERIOD_SECONDS: Final = 0.2
NFT_SECONDS: Final = 10.0
CONNECTIONS: Final = 4
_OWN: Final = "own"


@dataclass(kw_only=True)
class ClusterServices:
    """The places of names, rules and volumes, and the state last written."""

    cluster: Cluster
    hosts: Path
    disks: Path
    loaded: dict[str, tuple[int, str]] = field(default_factory=dict)
    named: str | None = None

    async def renew(self) -> None:
        """Bring names, rules and volumes up to date."""
        services, slices, _ = await asyncio.gather(
            self.cluster.items("/api/v1/services?resourceVersion=0"),
            self.cluster.items("/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0"),
            volumes.provision(self.cluster, self.disks),
        )
        ports = service_forwarding.service_ports(services, slices)
        await self._load(service_forwarding.ruleset(ports, network.SERVICES))
        self._name(cluster_dns.hosts(services, slices))

    async def _load(self, rules: str) -> None:
        spaces: dict[str, tuple[int, list[str]]] = {_OWN: (0, [])}
        for space in network.NAMESPACES.iterdir():
            spaces[space.name] = space.stat().st_ino, ["nsenter", f"--net={space}"]
        for name, (identity, enter) in spaces.items():
            if self.loaded.get(name) != (identity, rules):
                await _nft(enter, rules)
                self.loaded[name] = identity, rules

    def _name(self, text: str) -> None:
        if text != self.named:
            draft = self.hosts.with_suffix(".new")
            draft.write_text(text)
            draft.rename(self.hosts / "cluster")
            self.named = text


async def _nft(enter: list[str], rules: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *enter,
        "nft",
        "-f",
        "-",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(NFT_SECONDS):
        output, _ = await process.communicate(rules.encode())
    if process.returncode:
        raise OSError(f"nft {enter}: {output.decode()}\n{rules}")


async def run(url: str, token: str, hosts: Path, disks: Path) -> None:
    """Renew everything again and again; a failed round is printed and tried again."""
    connector = aiohttp.TCPConnector(ssl=False, limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session:
        services = ClusterServices(cluster=Cluster(session, url, token), hosts=hosts, disks=disks)
        while True:
            try:
                await services.renew()
            except (OSError, aiohttp.ClientError, AssertionError, TimeoutError) as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            await asyncio.sleep(PERIOD_SECONDS)


if __name__ == "__main__":
    _url, _token, _hosts, _disks = sys.argv[1:]
    asyncio.run(run(_url, _token, Path(_hosts), Path(_disks)))
