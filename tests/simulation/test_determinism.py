"""A seed runs the same way every time, on every interpreter, whatever its hash seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.run import run

TESTS = Path(__file__).parents[1]
SEEDS = (0, 3, 9)
SCRIPT = "import sys; from simulation.run import run; print(run(int(sys.argv[1])).digest)"


def digest_with(hash_seed: str, seed: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(seed)],
        cwd=TESTS,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_trace_again(seed: int) -> None:
    first, second = run(seed), run(seed)
    assert first.trace == second.trace
    assert first.digest == second.digest
    assert first.steps == second.steps


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_trace_whatever_the_hash_seed(seed: int) -> None:
    assert {digest_with(hash_seed, seed) for hash_seed in ("0", "1", "77")} == {run(seed).digest}


def test_different_seeds_are_different_runs() -> None:
    assert len({run(seed).digest for seed in range(5)}) == 5
