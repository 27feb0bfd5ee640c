"""Campaigns: many seeds, on several processors, and the story of one that fails."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Final

import msgspec

from gpuledger.simulation import script
from gpuledger.simulation.running import Result, play, run
from gpuledger.simulation.shrinking import shrink

SEEDS_AT_ONCE: Final = 10
"""Seeds that a worker is given at a time."""


def campaign(
    seeds: Iterable[int], workers: int = 1, defects: Sequence[str] = ()
) -> Iterator[Result]:
    """Run seeds and yield their results in order; a result without a violation has no trace."""
    work = partial(_run_briefly, defects=tuple(defects))
    if workers == 1:
        yield from map(work, seeds)
        return
    # A fresh interpreter per worker: nothing of this process, its threads or its loop, is copied.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, seeds, chunksize=SEEDS_AT_ONCE)


def explain(seed: int, defects: Sequence[str] = ()) -> str:
    """Return what is wrong with a seed and the shortest way to it that was found."""
    plan = script.write(seed)
    found = play(plan, defects)
    if found.violation is None:
        return f"seed {seed}: no violation in {found.steps} steps, {found.seconds:.0f} s"
    shorter, shown = shrink(plan, found, defects)
    assert shown.violation is not None, "shrinking keeps the violation"
    return "\n".join(
        (
            f"seed {seed} violates: {shown.violation.rule}",
            f"  {shown.violation.message}",
            f"  {len(shorter.operations)} of {len(plan.operations)} operations are enough:",
            *shown.trace,
            f"replay the whole of it with: gpuledger simulate --seed {seed}",
        )
    )


def _run_briefly(seed: int, defects: tuple[str, ...]) -> Result:
    result = run(seed, defects)
    return result if result.violation is not None else msgspec.structs.replace(result, trace=[])
