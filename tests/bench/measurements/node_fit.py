"""Node fit: the calculation of the extender for filter and prioritize, inside the process."""

import gc
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from extender.fit.feasible_nodes import FitQuestion, fit, priorities
from extender.fit.node_failure_reasons import reasons_of
from extender.inventory.card_arrays import CardArrays
from extender.inventory.unrecorded_card_use import UsageOverlay
from ledger.core.model.cards import Phase
from ledger.kube.requests.device_requests import (
    ContainerDeviceRequests,
    DeviceRequest,
    PodDeviceRequest,
)
from tests.bench.harness.fresh_process import fresh
from tests.bench.harness.results import Goal, Result, result

SIZES: Final = (100, 1_000, 5_000)
CARDS: Final = 8
"""Cards of a node."""
FULL: Final = 0.6
"""Which part of the memory, cores and slots of the cards is in use, about."""

_MEMORY: Final = 81_920
_SLOTS: Final = 10
_QUANTUM: Final = _MEMORY // _SLOTS

_SHARED: Final = DeviceRequest("nvidia", 1, 2 * _QUANTUM, 0, 20, exclusive=False)
"""A part of one card; most nodes have room for it."""
_WHOLE: Final = DeviceRequest("nvidia", 1, 0, 100, 100, exclusive=True)
"""A card for itself; many nodes have none, and each gets a reason."""
_SEVERAL: Final = DeviceRequest("nvidia", 4, 2 * _QUANTUM, 0, 20, exclusive=False)


def run(quick: bool) -> list[Result]:
    """Measure small to large clusters in one process that does nothing else."""
    times = fresh(measure, rounds=50 if quick else 400)
    goal = Goal(5.0, "most")
    note = f"{CARDS} cards a node, {FULL:.0%} in use; all nodes are asked about, with reasons"
    results = [
        result(
            f"filter and prioritize inside, {size:,} nodes, p50",
            times[f"shared {size} p50"],
            "ms",
            goal=goal if size == SIZES[-1] else None,
            note=note if size == SIZES[0] else "",
        )
        for size in SIZES
    ]
    large = SIZES[-1]
    results += [
        result(f"the same, {large:,} nodes, p99", times[f"shared {large} p99"], "ms"),
        result(
            f"the same, {large:,} nodes against {SIZES[1]:,}",
            times[f"shared {large} p50"],
            "ms",
            baseline=times[f"shared {SIZES[1]} p50"],
            goal=Goal(1.5 * large / SIZES[1], "most", "ratio"),
            note="growth is at most linear with a small factor",
        ),
        result(f"a whole card, {large:,} nodes, p50", times[f"whole {large} p50"], "ms"),
        result(f"four cards, {large:,} nodes, p50", times[f"several {large} p50"], "ms"),
        result("choosing for bind, one node, p50", times["one node p50"], "ms"),
    ]
    return results


async def measure(rounds: int) -> dict[str, float]:
    """Return milliseconds by what was measured."""
    times: dict[str, float] = {}
    for size in SIZES:
        arrays, overlay = cluster(size), UsageOverlay(size, CARDS)
        rows = np.random.default_rng(size).permutation(size)
        shapes = {"shared": _SHARED, "whole": _WHOLE, "several": _SEVERAL}
        for name, wish in shapes.items() if size == SIZES[-1] else [("shared", _SHARED)]:
            asked = FitQuestion(_pod(wish), rows)
            times |= _timed(f"{name} {size}", rounds, _answering(arrays, overlay, asked))
    question = FitQuestion(_pod(_SHARED), rows[:1])
    return times | _timed("one node", rounds, _answering(arrays, overlay, question))


def cluster(size: int) -> CardArrays:
    """Return nodes whose cards are used by random amounts; some cards are free."""
    random = np.random.default_rng(size)
    arrays = CardArrays(size, CARDS)
    arrays.present[:], arrays.usable[:] = True, True
    arrays.memory[:], arrays.cores[:], arrays.slots[:] = _MEMORY, 100, _SLOTS
    arrays.index[:] = np.arange(CARDS)
    arrays.numa[:] = np.arange(CARDS) // 4
    arrays.used_slots[:] = random.binomial(_SLOTS, FULL, (size, CARDS))
    arrays.used_slots[random.random((size, CARDS)) < 0.1] = 0
    arrays.used_memory[:] = arrays.used_slots * _QUANTUM
    arrays.used_cores[:] = arrays.used_slots * 10
    arrays.kinds, arrays.vendors = ["NVIDIA A100-SXM4-80GB"], ["nvidia"]
    arrays.modes = ["hami-core"]
    arrays.uuids = [[f"GPU-{row}-{column}" for column in range(CARDS)] for row in range(size)]
    return arrays


def _answering(
    arrays: CardArrays, overlay: UsageOverlay, question: FitQuestion
) -> Callable[[], object]:
    def answer() -> object:
        fits = fit(arrays, overlay, question)
        return reasons_of(fits), priorities(fits)

    return answer


def _timed(name: str, rounds: int, answer: Callable[[], object]) -> dict[str, float]:
    for _ in range(min(rounds, 20)):
        answer()
    gc.collect()
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        answer()
        taken.append(1_000 * (time.perf_counter() - begun))
    p50, p99 = np.percentile(taken, [50, 99])
    return {f"{name} p50": float(p50), f"{name} p99": float(p99)}


def _pod(wish: DeviceRequest) -> PodDeviceRequest:
    return PodDeviceRequest((ContainerDeviceRequests("main", Phase.APP, (wish,)),))
