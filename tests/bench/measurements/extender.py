"""The extender over HTTP, as kube-scheduler asks it: filter and prioritize with names of nodes.

Server and visitor are one process and one event loop, so what is measured includes reading and
writing the request on the visitor's side. The baseline is the same stack posting the same body to
an endpoint that reads it and answers nothing.
"""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from extender.extender_routes import routes
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
from ledger.runtime.http import http_server, json_endpoint
from ledger.runtime.http.json_endpoint import BodyBudget
from tests.bench.harness.fresh_process import fresh
from tests.bench.harness.results import Goal, Result, result
from tests.bench.measurements.node_fit import CARDS, FULL, SIZES, cluster

RECORDED: Final = Path(__file__).parents[2] / "fixtures" / "extender" / "extender-names.json"
BODY_MAX: Final = 16 * 1024**2
DEADLINE_SECONDS: Final = 30


class NullLedger:
    """A ledger in which nothing happens."""

    state = State()

    def subscribe(self, callback: Callable[[Record], None]) -> None:
        """Never call back."""

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Denial:
        """Decide nothing."""
        return system_denials.unavailable("it is measured without one")


def run(quick: bool) -> list[Result]:
    """Measure small to large clusters."""
    times = fresh(measure, rounds=40 if quick else 300)
    return [
        result(
            f"filter, then prioritize, over HTTP, {size:,} nodes, {share}",
            times[f"both {size} {share}"],
            "ms",
            baseline=times[f"plain {size} {share}"],
            goal=Goal(10.0, "most") if (size, share) == (SIZES[-1], "p50") else None,
            note=f"{CARDS} cards a node, {FULL:.0%} in use; the visitor is in the same process"
            if size == SIZES[0] and share == "p50"
            else "",
        )
        for size in SIZES
        for share in ("p50", "p99")
    ]


async def measure(rounds: int) -> dict[str, float]:
    """Return milliseconds by what was measured."""
    times: dict[str, float] = {}
    for size in SIZES:
        listener, stop, started = http_server.bind("127.0.0.1:0"), asyncio.Event(), asyncio.Event()
        app = Starlette(routes=[*routes(_extender(size), BODY_MAX), Route("/plain", _Plain())])
        served = asyncio.create_task(http_server.serve(app, listener, stop, started=started.set))
        await started.wait()
        timeout = aiohttp.ClientTimeout(total=DEADLINE_SECONDS)
        base = f"http://{listener.address}"
        async with aiohttp.ClientSession(base, timeout=timeout) as session:
            times |= await _measured(session, size, rounds)
        stop.set()
        await served
    return times


class _Plain:
    """Reads a body and answers nothing."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        until = asyncio.get_running_loop().time() + DEADLINE_SECONDS
        with BodyBudget(BODY_MAX).holding() as held:
            await json_endpoint.read_body(receive, BODY_MAX, until, held)
        await json_endpoint.respond(send, 200, b"{}")


def _extender(size: int) -> Extender:
    inventory = ClusterInventory("local", UsageOverlay(size, CARDS))
    inventory.arrays = cluster(size)
    inventory.rows = {f"node-{row}": row for row in range(size)}
    inventory.names = list(inventory.rows)
    inventory.loaded = True
    ledger = NullLedger()
    return Extender(inventory, ExtenderPorts(ledger, ledger, None, DemandRules))


async def _measured(session: aiohttp.ClientSession, size: int, rounds: int) -> dict[str, float]:
    names = [f"node-{row}" for row in range(size)]
    plain, both = [], []
    for number in range(rounds + 20):
        pod = _pod(number)
        body = json.dumps({"Pod": pod, "NodeNames": names}).encode()
        taken, left = await _posted(session, "/extender/filter", body)
        rest = json.dumps({"Pod": pod, "NodeNames": left["NodeNames"]}).encode()
        more, _ = await _posted(session, "/extender/prioritize", rest)
        both.append(taken + more)
        first, _ = await _posted(session, "/plain", body)
        second, _ = await _posted(session, "/plain", rest)
        plain.append(first + second)
    times: dict[str, float] = {}
    for name, seconds in (("both", both[20:]), ("plain", plain[20:])):
        p50, p99 = np.percentile(seconds, [50, 99])
        times |= {f"{name} {size} p50": 1e3 * float(p50), f"{name} {size} p99": 1e3 * float(p99)}
    return times


async def _posted(session: aiohttp.ClientSession, path: str, body: bytes) -> tuple[float, Any]:
    """Post a body; return the seconds until the whole answer was there, and the answer."""
    headers = {"content-type": "application/json"}
    begun = time.perf_counter()
    async with session.post(path, data=body, headers=headers) as response:
        text = await response.read()
    taken = time.perf_counter() - begun
    assert response.status == 200, text
    return taken, json.loads(text)


def _pod(number: int) -> dict[str, Any]:
    """Return the recorded pod as another one that wants a part of a card."""
    pod: dict[str, Any] = json.loads(RECORDED.read_text())[0]["args"]["Pod"]
    pod["metadata"] |= {"name": f"pod-{number}", "uid": f"uid-{number}"}
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "16384", "nvidia.com/gpucores": "20"}
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    return pod
