"""Reviews over HTTPS: how many become durable reservations per second, and their processor time.

The baseline is the frozen stack, TLS and routing and reading and decoding the body included, that
answers "allowed" without any ledger. Both are visited by the same load generator in the same run,
the service with everything that belongs to it: its nats-server and its projection.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from tests.bench.frozen.permissive_webhook import permissive_webhook
from tests.bench.harness import ledgers
from tests.bench.harness.bench_service import MeasuredProcess, serving
from tests.bench.harness.fresh_process import fresh, median
from tests.bench.harness.results import Goal, Result, result
from tests.bench.load.review_load import CONNECTIONS, post_reviews

NAMESPACES = 1_000
LONGEST_BLOCK = "gpuledger_loop_blocked_max_seconds"


def run(quick: bool) -> list[Result]:
    """Measure both, in turn."""
    rounds, count = (1, 8_000) if quick else (3, 40_000)
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory)
        fresh(prepare, store=directory)
        with serving(store) as service, permissive_webhook(store) as baseline:
            numbers = review_numbers(count)
            plain, ledger = [], []
            for _ in range(rounds):
                plain.append(visit(baseline, store, numbers))
                ledger.append(visit(service, store, numbers))
            waited = service.metric(LONGEST_BLOCK)
        with serving(store, by_processor=True) as service:
            visit(service, store, numbers)
            blocked = service.metric(LONGEST_BLOCK)
    return _results(median(plain), median(ledger), blocked, waited)


def _results(
    plain: dict[str, float], ledger: dict[str, float], blocked: float, waited: float
) -> list[Result]:
    visitor = ledger["computed"] * 1e6
    return [
        result(
            "reviews over HTTPS, durable",
            ledger["per_second"],
            "requests/s",
            baseline=plain["per_second"],
            goal=Goal(0.65, "least", "ratio"),
            note=f"{CONNECTIONS} connections; the load generator computes {visitor:.0f} µs per"
            " request; baseline: the frozen stack answers allowed without a ledger",
        ),
        result(
            "processor time of a review",
            ledger["served"] * 1e6,
            "µs",
            baseline=plain["served"] * 1e6,
            goal=Goal(130, "most"),
            note="of the serving process alone; unlike the rate it hardly depends on what else"
            " the machine does",
        ),
        result(
            "longest block of the writer while serving",
            blocked * 1e3,
            "ms of processor time",
            goal=Goal(5, "most"),
            note=f"{waited * 1e3:.1f} ms with the waits for a core, in all rounds",
        ),
    ]


def review_numbers(count: int, first: int = 0) -> Iterator[dict[str, int]]:
    """Yield how many pods, and which, the next visit is about."""
    while True:
        yield {"count": count, "first": first}
        first += count


def visit(
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
