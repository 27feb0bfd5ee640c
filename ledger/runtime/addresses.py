"""Addresses as people write them: `HOST:PORT`, with brackets around an IPv6 host."""

import ipaddress
from typing import Final

PORT_MAX: Final = 65_535


def split(address: str) -> tuple[str, int]:
    """Return `(host, port)` of a `HOST:PORT` that the settings let through."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def port_of(address: str) -> int:
    """Return the port of a `HOST:PORT`."""
    return split(address)[1]


def joined(host: str, port: int) -> str:
    """Return `HOST:PORT`, with brackets where the host has colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's loopback: `localhost` or a loopback address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
