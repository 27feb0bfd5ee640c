"""The extender over HTTPS, as kube-scheduler asks it: filter and prioritize with names of nodes.

Server and client are processes of their own; the client uses one connection and waits for each
answer. The baseline is the frozen stack, which reads the same bodies and answers nothing.
"""

import http.client
import json
import ssl
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.bench.harness.bench_service import MeasuredProcess
from tests.bench.harness.fresh_process import percentile
from tests.bench.harness.results import Goal, Result, result
from tests.bench.load.extender_servers import (
    DEADLINE_SECONDS,
    VERBS,
    extender_server,
    serve_extender,
    serve_nothing,
)
from tests.bench.measurements.node_fit import CARDS, FULL, SIZES

RECORDED: Final = Path(__file__).parents[2] / "fixtures" / "extender" / "extender-names.json"
COST: Final = "filter and prioritize over HTTPS, processor time of the server"
PART: Final = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "16384", "nvidia.com/gpucores": "20"}
WHOLE: Final = {"nvidia.com/gpu": "1"}
WARM: Final = 20
"""Pairs of requests before those that count."""


class Visit(NamedTuple):
    """The median seconds of a pair, and the server's processor seconds of a pair."""

    p50: float
    computed: float


Bodies = list[tuple[bytes, bytes]]
"""Of each pod, the bodies for filter and prioritize."""


def run(quick: bool) -> list[Result]:
    """Measure small to large clusters, and a whole card in the largest."""
    rounds, largest = 40 if quick else 300, SIZES[-1]
    rows = []
    for size in SIZES:
        ours, plain = _both(size, rounds, PART)
        rows.append(
            result(
                f"filter, then prioritize, over HTTPS, {size:,} nodes, p50",
                ours.p50 * 1e3,
                "ms",
                baseline=plain.p50 * 1e3,
                goal=Goal(10.0, "most") if size == largest else None,
                note=f"{CARDS} cards a node, {FULL:.0%} in use" if size == SIZES[0] else "",
            )
        )
    return [
        *rows,
        _cost(COST, ours, plain, f"one pair at {largest:,} nodes"),
        _cost(f"{COST}, a whole card", *_both(largest, rounds, WHOLE), "the same"),
    ]


def _cost(name: str, ours: Visit, plain: Visit, note: str) -> Result:
    most = Goal(9.0, "most")
    value, baseline = ours.computed * 1e3, plain.computed * 1e3
    return result(name, value, "ms", baseline=baseline, goal=most, note=note)


def _both(size: int, rounds: int, limits: dict[str, str]) -> tuple[Visit, Visit]:
    """Visit the extender and the baseline with pods of these limits."""
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory)
        with extender_server(serve_extender, store, size) as server:
            bodies = _bodies(store, server, size, [_pod(n, limits) for n in range(WARM + rounds)])
            ours = _visited(server, store, bodies)
        with extender_server(serve_nothing, store, size) as server:
            return ours, _visited(server, store, bodies)


def _visited(server: MeasuredProcess, store: Path, bodies: Bodies) -> Visit:
    """Send all pairs in turn, the first ones uncounted."""
    connection, taken = _connected(server, store), []
    for number, pair in enumerate(bodies):
        if number == WARM:
            before = server.computed()
        started = time.perf_counter()
        for verb, body in zip(VERBS, pair, strict=True):
            _posted(connection, verb, body)
        taken.append(time.perf_counter() - started)
    connection.close()
    counted = taken[WARM:]
    return Visit(percentile(counted, 0.5), (server.computed() - before) / len(counted))


def _bodies(store: Path, server: MeasuredProcess, size: int, pods: list[Any]) -> Bodies:
    """Return requests of different pods; prioritize is asked about the nodes that filter left."""
    names = [f"node-{row}" for row in range(size)]
    connection, bodies = _connected(server, store), Bodies()
    left: list[str] = []
    for pod in pods:
        first = json.dumps({"Pod": pod, "NodeNames": names}).encode()
        # All pods ask for the same and none is placed, so the answer about nodes is one.
        left = left or json.loads(_posted(connection, "filter", first))["NodeNames"]
        bodies.append((first, json.dumps({"Pod": pod, "NodeNames": left}).encode()))
    connection.close()
    return bodies


def _connected(server: MeasuredProcess, store: Path) -> http.client.HTTPSConnection:
    host, _, port = server.address.rpartition(":")
    context = ssl.create_default_context(cafile=store / "tls" / "ca.crt")
    return http.client.HTTPSConnection(host, int(port), timeout=DEADLINE_SECONDS, context=context)


def _posted(connection: http.client.HTTPSConnection, verb: str, body: bytes) -> bytes:
    headers = {"content-type": "application/json"}
    connection.request("POST", f"/extender/{verb}", body, headers)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    return text


def _pod(number: int, limits: dict[str, str]) -> dict[str, Any]:
    """Return the recorded pod as another one with these limits."""
    pod: dict[str, Any] = json.loads(RECORDED.read_text())[0]["args"]["Pod"]
    pod["metadata"] |= {"name": f"pod-{number}", "uid": f"uid-{number}"}
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    return pod
