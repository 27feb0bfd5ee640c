"""Results of the steps with resource claims: processor times, and what they are compared with."""

import statistics
from collections import Counter
from typing import Final

from tests.bench.harness.results import Goal, Result, result

BARE, LEDGER = "bare", "ledger"
"""The ways: without a webhook, and with gpuledger."""

PLAIN: Final = "a pod without a claim"
CLAIMED: Final = "a pod with a generated claim"
PARTED: Final = "a pod whose claim is not made yet"
GENERATED: Final = "a generated claim"
OWN: Final = "a claim without an owner"
ALLOCATED: Final = "an allocation"
REVIEWED: Final = (PLAIN, PARTED, GENERATED, OWN)
"""The steps with one request for each object, so one review with gpuledger."""

API_SERVER: Final = "kube-apiserver"
_OTHERS: Final = frozenset((API_SERVER, "etcd", "kube-controller"))

Costs = dict[str, dict[str, list[Counter[str]]]]
"""Processor seconds by program of each object, for each round, by way and step."""


def results(costs: Costs, sizes: str) -> list[Result]:
    """Return the rows of all steps; a row's value is the median of the rounds."""
    whole = {(way, step): _whole(costs, way, step) for way in costs for step in costs[way]}
    return [
        result(
            f"{PLAIN}, gpuledger",
            whole[LEDGER, PLAIN],
            "µs",
            note=f"{sizes}; {_WHAT}; {_parts(costs, LEDGER, PLAIN)}",
        ),
        result(
            f"{CLAIMED}, gpuledger",
            whole[LEDGER, CLAIMED],
            "µs",
            baseline=whole[LEDGER, PLAIN],
            goal=Goal(2, "most", "ratio"),
            note=_parts(costs, LEDGER, CLAIMED),
        ),
        result(f"{PLAIN}, no webhook", whole[BARE, PLAIN], "µs"),
        result(
            f"{CLAIMED}, no webhook",
            whole[BARE, CLAIMED],
            "µs",
            baseline=whole[BARE, PLAIN],
            note=_parts(costs, BARE, CLAIMED),
        ),
        *(_review(costs, whole, step) for step in REVIEWED),
        result(
            "1,000 allocations are settled, gpuledger",
            1_000 * _ours(costs, LEDGER, ALLOCATED) / 1e6,
            "s",
            goal=Goal(1, "most"),
            note="processor time of gpuledger with its log and projection; the API server"
            f" {_api_server(costs, LEDGER, ALLOCATED):,.0f} µs each,"
            f" {_api_server(costs, BARE, ALLOCATED):,.0f} without gpuledger",
        ),
    ]


_WHAT: Final = "processor time of the API server and of gpuledger with its log and projection"


def _review(costs: Costs, whole: dict[tuple[str, str], float], step: str) -> Result:
    added = whole[LEDGER, step] - whole[BARE, step]
    pod = whole[LEDGER, PLAIN] - whole[BARE, PLAIN]
    return result(
        f"review of {step}",
        added,
        "µs",
        baseline=pod,
        goal=Goal(1, "most", "ratio") if step in (GENERATED, OWN) else None,
        note=f"above the same without a webhook; {_parts(costs, LEDGER, step)},"
        f" API server without a webhook {_api_server(costs, BARE, step):,.0f} µs",
    )


def _whole(costs: Costs, way: str, step: str) -> float:
    return _api_server(costs, way, step) + _ours(costs, way, step)


def _parts(costs: Costs, way: str, step: str) -> str:
    api_server, ours = _api_server(costs, way, step), _ours(costs, way, step)
    return f"API server {api_server:,.0f}, gpuledger {ours:,.0f} µs"


def _api_server(costs: Costs, way: str, step: str) -> float:
    return 1e6 * statistics.median(each[API_SERVER] for each in costs[way][step])


def _ours(costs: Costs, way: str, step: str) -> float:
    return 1e6 * statistics.median(
        sum(seconds for program, seconds in each.items() if program not in _OTHERS)
        for each in costs[way][step]
    )
