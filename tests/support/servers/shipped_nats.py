"""Shipped NATS: three nats-servers on loopback, with the configuration of deploy/."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml
from support.servers.nats_servers import NatsServer
from support.servers.ports import free_port

from ledger.log.embedded import server_files

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
SHIPPED: Final = (DEPLOY / "nats.conf").read_text()
[SERVER] = [
    manifest["spec"]["template"]["spec"]["containers"][0]
    for manifest in yaml.safe_load_all((DEPLOY / "nats.yaml").read_text())
    if manifest["kind"] == "StatefulSet"
]
[ROUTES] = [variable["value"] for variable in SERVER["env"] if variable["name"] == "ROUTES"]
SERVERS: Final = 3
# As in docs/how-to/kustomize.md: a letter first, because NATS parses bare digits as a number.
PASSWORD: Final = "p12345678901234567890"
ROUTE_PASSWORD: Final = "p09876543210987654321"
AGENT_PASSWORD: Final = "p11111111110000000000"


class ShippedServer(NatsServer):
    """One server with the shipped configuration, on loopback instead of a pod's address."""

    def __init__(self, folder: Path, number: int, routes: list[int]) -> None:
        super().__init__(folder)
        self.name = f"gpuledger-nats-{number}"
        replaced = {
            "0.0.0.0:4222": f"127.0.0.1:{self.port}",
            "0.0.0.0:8222": f"127.0.0.1:{self.monitor_port}",
            "0.0.0.0:6222": f"127.0.0.1:{routes[number]}",
            "store_dir: /data": f'store_dir: "{folder / "data"}"',
        }
        text = SHIPPED
        for old, new in replaced.items():
            assert old in text, f"nats.conf has no {old}"
            text = text.replace(old, new)
        self.configuration.write_text(text)
        self._routes = ROUTES.replace("$(ROUTE_PASSWORD)", ROUTE_PASSWORD)
        for other, port in enumerate(routes):
            address = f"gpuledger-nats-{other}.gpuledger-nats:6222"
            self._routes = self._routes.replace(address, f"127.0.0.1:{port}")

    def launch(self) -> None:
        given = {
            "POD_NAME": self.name,
            "PASSWORD": PASSWORD,
            "ROUTE_PASSWORD": ROUTE_PASSWORD,
            "AGENT_PASSWORD": AGENT_PASSWORD,
            "ROUTES": self._routes,
        }
        assert given.keys() < {variable["name"] for variable in SERVER["env"]}
        command: list[str | Path] = [server_files.binary(), "--config", self.configuration]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | given)


@contextlib.contextmanager
def shipped_servers(folder: Path) -> Iterator[list[ShippedServer]]:
    """Start the three servers below a folder, and stop them at the end."""
    routes = [free_port() for _ in range(SERVERS)]
    servers = [ShippedServer(folder / f"n{number}", number, routes) for number in range(SERVERS)]
    try:
        for server in servers:
            server.launch()
        yield servers
    finally:
        for server in servers:
            server.stop()
