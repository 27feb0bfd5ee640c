"""Runs: one seed from beginning to end."""

import hashlib
import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
import structlog

from simulation.defects.core import planted
from simulation.engine.loop import Deadlock, Runaway, VirtualLoop
from simulation.oracle.checker import Violation
from simulation.script import script
from simulation.script.script import Script
from simulation.world.world import World

STEPS_MAX: Final = 2_000_000
"""Callbacks of one run; the longest sound ones take a tenth of that."""


class Result(msgspec.Struct, frozen=True):
    """The result of a run. `trace` is one line per thing that happened, `digest` its SHA-256."""

    seed: int
    violation: Violation | None
    trace: list[str]
    digest: str
    steps: int
    seconds: float


def run_script(plan: Script, defects: Sequence[str] = ()) -> Result:
    """Run a script, with deliberate defects of these names."""
    source = random.Random(f"order {plan.seed}")
    # Not abstract at run time: what it leaves out needs sockets, signals or threads.
    loop = VirtualLoop(source, steps_max=STEPS_MAX)  # type: ignore[abstract]
    trace: list[str] = []
    violation = None

    def note(text: str) -> None:
        trace.append(f"{loop.time():9.3f}  {text}")

    worlds: list[World] = []

    async def live() -> None:
        worlds.append(World(plan, note))
        await worlds[0].play()

    with _muted_logs(plan.seed), planted(defects):
        try:
            loop.run(live())
        except (Deadlock, Runaway, TimeoutError) as error:
            violation = Violation("everything goes on", repr(error), loop.time())
    violation = worlds[0].checker.violation or violation
    if violation is None and loop.problems:
        violation = Violation("nothing fails unnoticed", loop.problems[0], loop.time())
    digest = hashlib.sha256("\n".join(trace).encode()).hexdigest()
    return Result(plan.seed, violation, trace, digest, loop.steps, loop.time())


def run(seed: int, defects: Sequence[str] = ()) -> Result:
    """Run a seed, with deliberate defects of these names."""
    return run_script(script.write(seed), defects)


@contextmanager
def _muted_logs(seed: int) -> Iterator[None]:
    """Keep the run away from the outside: seeded jitter, and no log output."""
    dice, structured = random.getstate(), structlog.get_config()
    level = logging.root.manager.disable
    random.seed(f"jitter {seed}")
    logging.disable(logging.CRITICAL)
    silent = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=silent)
    try:
        yield
    finally:
        structlog.configure(**structured)
        logging.disable(level)
        random.setstate(dice)
