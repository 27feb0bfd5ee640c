"""Extender servers: processes that answer filter and prioritize over HTTPS.

One is the product's extender on the product's HTTP server, on a ledger without content. The other
is the baseline: the frozen stack reads the same bodies and answers nothing.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from support.servers.ports import free_port

from extender.extender_routes import endpoints
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.scheduler_api.extender_ports import ExtenderPorts
from extender.scheduler_extender import Extender
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.kube.requests.demand_rules import DemandRules
from ledger.log import system_denials
from ledger.log.records import Record
from ledger.runtime.http import direct_endpoints, http_server
from ledger.runtime.http.direct_endpoints import DirectEndpoints
from ledger.runtime.http.loopback_access import LoopbackRequired
from ledger.runtime.tls import certificate_reload
from tests.bench.frozen import http_stack
from tests.bench.frozen.http_stack import HOST, FrozenServer
from tests.bench.harness.bench_service import MeasuredProcess
from tests.bench.harness.fresh_process import Measure, start, wait_for_go
from tests.bench.measurements.node_fit import CARDS, cluster

BODY_MAX: Final = 16 * 1024**2
DEADLINE_SECONDS: Final = 30.0
VERBS: Final = ("filter", "prioritize")


class NullLedger:
    """A ledger in which nothing happens."""

    state = State()

    def subscribe(self, callback: Callable[[Record], None]) -> None:
        """Never call back."""

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Denial:
        """Decide nothing."""
        return system_denials.unavailable("it is measured without one")


class EmptyAnswer:
    """Reads a body and answers an empty object."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        until = asyncio.get_running_loop().time() + DEADLINE_SECONDS
        http_stack.check(scope, BODY_MAX)
        await http_stack.read(receive, BODY_MAX, until)
        await http_stack.answer(send, 200, b"{}")


async def serve_extender(store: str, port: int, size: int) -> dict[str, float]:
    """Serve the product's extender for so many nodes until `wait_for_go` returns."""
    served = endpoints(_extender(size), BODY_MAX)
    app = LoopbackRequired(Starlette(routes=direct_endpoints.routes(served)))
    direct = DirectEndpoints(served, app)
    secured = certificate_reload.Tls(certificate_reload.own(Path(store, "tls"), (HOST,)))
    stop = asyncio.Event()
    listener = http_server.bind(f"{HOST}:{port}")
    task = asyncio.create_task(http_server.serve(app, listener, stop, tls=secured, direct=direct))
    await wait_for_go()
    stop.set()
    await task
    return {}


async def serve_nothing(store: str, port: int, size: int) -> dict[str, float]:
    """Serve the baseline until `wait_for_go` returns; `size` has no effect."""
    app = Starlette(routes=[Route(f"/extender/{verb}", EmptyAnswer()) for verb in VERBS])
    await FrozenServer(app, Path(store), port).serve_until(wait_for_go())
    return {}


@contextmanager
def extender_server(serve: Measure, store: Path, size: int) -> Iterator[MeasuredProcess]:
    """Run one of the servers for the block."""
    port = free_port()
    running = start(serve, store=str(store), port=port, size=size)
    running.wait_ready()
    try:
        yield MeasuredProcess(running.pid, f"{HOST}:{port}")
    finally:
        running.go()
        running.result()


def _extender(size: int) -> Extender:
    inventory = ClusterInventory("local", UsageOverlay(size, CARDS))
    inventory.arrays = cluster(size)
    inventory.rows = {f"node-{row}": row for row in range(size)}
    inventory.names = list(inventory.rows)
    inventory.loaded = True
    ledger = NullLedger()
    return Extender(inventory, ExtenderPorts(ledger, ledger, None, DemandRules))
