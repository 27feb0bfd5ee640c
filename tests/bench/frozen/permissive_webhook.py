"""Permissive webhook: the baseline, which reads a pod and allows it, on the frozen stack."""

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route
from support.servers.ports import free_port

from tests.bench.frozen.http_stack import HOST, FrozenServer
from tests.bench.frozen.review import MUTATE_PATH, VALIDATE_PATH, AllowingEndpoint
from tests.bench.harness.bench_service import MeasuredProcess
from tests.bench.harness.fresh_process import MeasuringProcess, start, wait_for_go

REGISTRATION: Final = Path(__file__).with_name("registration.json")
"""The webhooks of pods in both configurations of 75bd653, without address and namespaces."""


class PermissiveProcess(MeasuredProcess):
    """The process that allows everything."""

    def __init__(self, running: MeasuringProcess, address: str, store: Path) -> None:
        super().__init__(running.pid, address)
        self._running = running
        self._authority = store / "tls" / "ca.crt"
        self.answered = 0

    def configurations(
        self, name: str, namespaces: list[str], *, mutating: bool = True
    ) -> list[dict[str, Any]]:
        """Return the webhook configurations of pods in these namespaces, or the validating one."""
        ca = base64.b64encode(self._authority.read_bytes()).decode()
        selector = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}
        entries = msgspec.json.decode(REGISTRATION.read_bytes())
        return [
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": entry["kind"],
                "metadata": {"name": name},
                "webhooks": [
                    entry["webhook"]
                    | {"namespaceSelector": {"matchExpressions": [selector]}}
                    | {"clientConfig": {"url": self._url(entry["path"]), "caBundle": ca}}
                ],
            }
            for entry in entries
            if mutating or entry["path"] == VALIDATE_PATH
        ]

    def end(self) -> None:
        """End it; `answered` is then how many reviews it has answered."""
        self._running.go()
        self.answered = int(self._running.result()["answered"])

    def _url(self, path: str) -> str:
        return f"https://{self.address}{path}"


async def answer_allowed(store: str, port: int) -> dict[str, float]:
    """Serve with the certificates of a store until `wait_for_go` returns."""
    endpoint = AllowingEndpoint()
    app = Starlette(routes=[Route(path, endpoint) for path in (MUTATE_PATH, VALIDATE_PATH)])
    await FrozenServer(app, Path(store), port).serve_until(wait_for_go())
    return {"computed": time.process_time(), "answered": endpoint.answered}


@contextmanager
def permissive_webhook(store: Path) -> Iterator[PermissiveProcess]:
    """Serve for the block."""
    port = free_port()
    running = start(answer_allowed, store=str(store), port=port)
    floor = PermissiveProcess(running, f"{HOST}:{port}", store)
    running.wait_ready()
    try:
        yield floor
    finally:
        floor.end()
