"""Names of a cluster, from Services and EndpointSlices to a file of hosts."""

from collections.abc import Iterator
from typing import Final

from tests.e2e.harness.cluster import Manifest
from tests.e2e.install.rig.service_forwarding import slices_by_service

DOMAIN: Final = "cluster.local"


def hosts(services: list[Manifest], slices: list[Manifest]) -> str:
    """Return a file of hosts with every Service, and every named endpoint of headless ones."""
    by_service = slices_by_service(slices)
    lines: set[str] = set()
    for service in services:
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        domain = f"{name}.{namespace}.svc.{DOMAIN}"
        address = service["spec"].get("clusterIP", "")
        if address == "None":
            lines |= set(_headless(domain, by_service[namespace, name]))
        elif address:
            lines.add(f"{address} {domain}")
    return "".join(f"{line}\n" for line in sorted(lines))


def _headless(domain: str, slices: list[Manifest]) -> Iterator[str]:
    for part in slices:
        for endpoint in part.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            for address in endpoint["addresses"]:
                yield f"{address} {domain}"
                if endpoint.get("hostname"):
                    yield f"{address} {endpoint['hostname']}.{domain}"
