"""Campaigns: many seeds, on several processors, and the shortest script of a failed one."""

import contextlib
import signal
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import active_children, get_context
from typing import Final

import msgspec

from simulation.run import Result, run, run_script
from simulation.script import script
from simulation.shrink import shrink

SEEDS_AT_ONCE: Final = 10
"""Seeds that a worker is given at a time."""


def campaign(
    seeds: Iterable[int], workers: int = 1, defects: Sequence[str] = ()
) -> Generator[Result]:
    """Run seeds and yield their results in order; a result without a violation has no trace.

    Closed before its end, or interrupted, it ends its workers at once.
    """
    work = partial(_run_briefly, defects=tuple(defects))
    if workers == 1:
        yield from map(work, seeds)
        return
    # A fresh interpreter per worker: nothing of this process, its threads or its loop, is copied.
    others = set(active_children())
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        with _deaf_to_interrupts():
            results = pool.map(work, seeds, chunksize=SEEDS_AT_ONCE)
        yield from results
    except BaseException:
        for child in set(active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Start processes that never get SIGINT: a terminal sends it to all, and one handles it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def explain(seed: int, defects: Sequence[str] = ()) -> str:
    """Return the violation of a seed and the shortest script that was found for it."""
    plan = script.write(seed)
    outcome = run_script(plan, defects)
    if outcome.violation is None:
        return f"seed {seed}: no violation in {outcome.steps} steps, {outcome.seconds:.0f} s"
    shorter, shown = shrink(plan, outcome, defects)
    assert shown.violation is not None, "shrinking keeps the violation"
    return "\n".join(
        (
            f"seed {seed} violates: {shown.violation.rule}",
            f"  {shown.violation.message}",
            f"  {len(shorter.operations)} of {len(plan.operations)} operations are enough:",
            *shown.trace,
            f"replay the whole of it with: PYTHONPATH=tests python -m simulation --seed {seed}",
        )
    )


def _run_briefly(seed: int, defects: tuple[str, ...]) -> Result:
    result = run(seed, defects)
    return result if result.violation is not None else msgspec.structs.replace(result, trace=[])
