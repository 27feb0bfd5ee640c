"""Forwarding of Service addresses, from Services and EndpointSlices to the rules of nftables.

It follows kube-proxy: a connection goes to a random ready endpoint; without a ready endpoint to one
that is terminating and still serves; without any the client is refused at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tests.e2e.harness.cluster import Manifest

TABLE: Final = "cluster_services"
_SERVICE_LABEL: Final = "kubernetes.io/service-name"
_HEADLESS: Final = ("", "None")


class ServicePort(NamedTuple):
    """A port of a Service's address, and where its connections go."""

    address: str
    protocol: str
    port: int
    endpoints: tuple[tuple[str, int], ...]


def service_ports(services: list[Manifest], slices: list[Manifest]) -> list[ServicePort]:
    """Return the ports of all Services that have an address."""
    by_service = slices_by_service(slices)
    return sorted(
        ServicePort(
            service["spec"]["clusterIP"],
            port.get("protocol", "TCP").lower(),
            port["port"],
            tuple(_endpoints(port.get("name", ""), by_service[_key(service)])),
        )
        for service in services
        if service["spec"].get("clusterIP", "") not in _HEADLESS
        for port in service["spec"].get("ports") or ()
    )


def ruleset(ports: Iterable[ServicePort], services: str) -> str:
    """Return the input of `nft -f` that replaces the table; `services` is the Services' range."""
    ports = list(ports)
    ends = sorted({(port.protocol, *end) for port in ports for end in port.endpoints})
    names = {end: f"endpoint_{number}" for number, end in enumerate(ends)}
    return "\n".join(
        [
            f"table ip {TABLE} {{}}",
            f"delete table ip {TABLE}",
            f"table ip {TABLE} {{",
            *(_endpoint_chain(names[end], end) for end in ends),
            *_chain("services", [_rule(port, names) for port in ports if port.endpoints]),
            *_chain("prerouting", ["type nat hook prerouting priority dstnat", "jump services"]),
            *_chain("output", ["type nat hook output priority -100", "jump services"]),
            *_chain("postrouting", ["type nat hook postrouting priority srcnat", *_hairpins(ends)]),
            *_chain("forward", ["type filter hook forward priority filter", _refuse(services)]),
            *_chain("local", ["type filter hook output priority filter", _refuse(services)]),
            "}",
            "",
        ]
    )


def slices_by_service(slices: list[Manifest]) -> dict[tuple[str, str], list[Manifest]]:
    """Return the EndpointSlices of each Service, by namespace and name."""
    by_service: dict[tuple[str, str], list[Manifest]] = defaultdict(list)
    for part in slices:
        labels = part["metadata"].get("labels") or {}
        by_service[part["metadata"]["namespace"], labels.get(_SERVICE_LABEL, "")].append(part)
    return by_service


def _key(service: Manifest) -> tuple[str, str]:
    return service["metadata"]["namespace"], service["metadata"]["name"]


def _endpoints(port: str, slices: list[Manifest]) -> list[tuple[str, int]]:
    """Return the endpoints of a named port that take connections."""
    ready, serving = set(), set()
    for part in slices:
        numbers = [each["port"] for each in part.get("ports") or () if each.get("name") == port]
        for endpoint in part.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            ends = {(address, number) for address in endpoint["addresses"] for number in numbers}
            if conditions.get("ready") is not False:
                ready |= ends
            elif conditions.get("serving") and conditions.get("terminating"):
                serving |= ends
    return sorted(ready or serving)


def _endpoint_chain(name: str, end: tuple[str, str, int]) -> str:
    protocol, address, port = end
    return f"chain {name} {{ meta l4proto {protocol} dnat to {address}:{port}; }}"


def _rule(port: ServicePort, names: dict[tuple[str, str, int], str]) -> str:
    chains = [names[port.protocol, *end] for end in port.endpoints]
    choices = ", ".join(f"{number} : goto {chain}" for number, chain in enumerate(chains))
    return (
        f"ip daddr {port.address} {port.protocol} dport {port.port}"
        f" numgen random mod {len(chains)} vmap {{ {choices} }}"
    )


def _hairpins(ends: list[tuple[str, str, int]]) -> Iterator[str]:
    """Yield the rules by which a pod reaches itself at the address of its Service."""
    for address in sorted({address for _, address, _ in ends}):
        yield f"ip saddr {address} ip daddr {address} masquerade"


def _refuse(services: str) -> str:
    return f"ip daddr {services} reject"


def _chain(name: str, lines: list[str]) -> list[str]:
    return [f"chain {name} {{", *(f"{line};" for line in lines), "}"]
