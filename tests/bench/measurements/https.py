"""Reviews over HTTPS: how many become durable reservations per second, and how soon.

The baseline is the same stack, TLS and routing and reading and decoding the body included, that
answers "allowed" without any ledger. Both are visited by the same load generator in the same run,
the service with everything that belongs to it: its nats-server and its projection.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from tests.bench.harness import ledgers
from tests.bench.harness.bench_service import BenchService, MeasuredProcess, serving
from tests.bench.harness.fresh_process import fresh, median
from tests.bench.harness.results import Goal, Result, result
from tests.bench.load.permissive_webhook import permissive_webhook
from tests.bench.load.review_load import CONNECTIONS, post_reviews

NAMESPACES = 1_000


def run(quick: bool) -> list[Result]:
    """Measure both, in turn, then the time to an answer at half of the service's load."""
    rounds, count = (1, 8_000) if quick else (3, 40_000)
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory)
        fresh(prepare, store=directory)
        with serving(store) as service, permissive_webhook(store) as baseline:
            numbers = _numbers(count)
            plain, ledger = [], []
            for _ in range(rounds):
                plain.append(_visit(baseline, store, numbers))
                ledger.append(_visit(service, store, numbers))
            return _results(median(plain), median(ledger), service, baseline, store)


def _results(
    plain: dict[str, float],
    ledger: dict[str, float],
    service: BenchService,
    baseline: MeasuredProcess,
    store: Path,
) -> list[Result]:
    half = ledger["per_second"] / 2
    calm = _visit(service, store, _numbers(int(10 * half), 1 << 28), half)
    easy = _visit(baseline, store, _numbers(int(10 * half), 1 << 29), half)
    visitor = ledger["computed"] * 1e6
    return [
        result(
            "reviews over HTTPS, durable",
            ledger["per_second"],
            "requests/s",
            baseline=plain["per_second"],
            goal=Goal(0.5, "least", "ratio"),
            note=f"{CONNECTIONS} connections; the load generator computes {visitor:.0f} µs per"
            " request; baseline: the same stack answers allowed without a ledger",
        ),
        result(
            "processor time of a review",
            ledger["served"] * 1e6,
            "µs",
            baseline=plain["served"] * 1e6,
            note="of the serving process alone; unlike the rate it hardly depends on what else"
            " the machine does",
        ),
        result("median time at half load", calm["p50"] * 1e3, "ms", baseline=easy["p50"] * 1e3),
        result(
            "p99 time at half load",
            calm["p99"] * 1e3,
            "ms",
            baseline=easy["p99"] * 1e3,
            goal=Goal(10, "most"),
            note=f"{half:,.0f} requests/s, sent at fixed moments whether or not answers come",
        ),
        result(
            "longest block of the writer while serving",
            service.metric("gpuledger_loop_blocked_seconds_max") * 1e3,
            "ms",
            goal=Goal(5, "most"),
        ),
    ]


def _numbers(count: int, first: int = 0) -> Iterator[dict[str, int]]:
    """Yield how many pods, and which, the next visit is about."""
    while True:
        yield {"count": count, "first": first}
        first += count


def _visit(
    visited: MeasuredProcess,
    store: Path,
    numbers: Iterator[dict[str, int]],
    per_second: float = 0.0,
) -> dict[str, float]:
    """Visit a process; `served` is how many seconds it computed per request."""
    number, before = next(numbers), visited.computed()
    measured = fresh(
        post_reviews,
        address=visited.address,
        store=str(store),
        per_second=per_second,
        **number,
    )
    return {**measured, "served": (visited.computed() - before) / number["count"]}


async def prepare(store: str) -> dict[str, float]:
    """Make a store with a quota in every namespace and one over all."""
    async with (
        EmbeddedServer(EmbeddedSettings(store=Path(store))) as server,
        ledgers.log_at(server.address) as log,
        ledgers.writer_on(log) as writer,
    ):
        await ledgers.set_limits(writer, NAMESPACES)
    return {}
