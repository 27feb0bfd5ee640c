"""A seed runs the same way every time, on every interpreter, with any hash seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.run import run

TESTS = Path(__file__).parents[1]
SEEDS = (0, 3, 9)
SCRIPT = """
import sys
from simulation.run import run
print(*(run(int(seed)).digest for seed in sys.argv[1:]))
"""


def digests_with(hash_seed: str) -> list[str]:
    """Return the digests of all seeds on an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, SEEDS)],
        cwd=TESTS,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_trace_again(seed: int) -> None:
    first, second = run(seed), run(seed)
    assert first.trace == second.trace
    assert first.digest == second.digest
    assert first.steps == second.steps


@pytest.mark.parametrize("hash_seed", ["0", "77"])
def test_a_seed_gives_the_same_trace_under_any_hash_seed(hash_seed: str) -> None:
    assert digests_with(hash_seed) == [run(seed).digest for seed in SEEDS]


def test_different_seeds_are_different_runs() -> None:
    assert len({run(seed).digest for seed in range(5)}) == 5
