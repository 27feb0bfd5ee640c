"""The charge follows the steps of the driver, which differ by card."""

from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.memory_user import environment, run

Program = Callable[[str], Path]

BLOCKS = {
    "VGPU_STUB_ALLOC_LARGE_STEP": "2m",
    "VGPU_STUB_ALLOC_BLOCK": "2m",
    "VGPU_STUB_MANAGED_STEP": "2m",
    "VGPU_STUB_ARRAY_STEP": "64k",
    "VGPU_STUB_POOL_STEP": "2m",
    "VGPU_STUB_GRAPH_STEP": "2m",
}
STEPS = {
    "bytes": {},
    "64k": {
        "VGPU_STUB_ALLOC_STEP": "64k",
        "VGPU_STUB_POOL_STEP": "8m",
        "VGPU_STUB_GRAPH_STEP": "32m",
    },
    "pages": {
        "VGPU_STUB_ALLOC_LARGE_STEP": "2m",
        "VGPU_STUB_ARRAY_STEP": "2m",
        "VGPU_STUB_POOL_STEP": "64m",
        "VGPU_STUB_GRAPH_STEP": "4m",
    },
    "blocks": BLOCKS,
}
"""Settings of the stub. The library has to measure them."""

RULES = ("granules", "small-holes", "pages-of-arrays", "growth", "graph-growth")


@pytest.fixture(params=STEPS)
def steps(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the stub's settings of each set."""
    return STEPS[request.param]


@pytest.mark.parametrize("rule", RULES)
def test_the_charge_is_what_the_driver_takes(
    rule: str, steps: dict[str, str], native: Path, program: Program, tmp_path: Path
) -> None:
    run(environment(native, tmp_path, "100m", **steps), program("memory_rules"), rule)


def test_a_charged_block_is_filled_when_no_other_has_room(
    native: Path, program: Program, tmp_path: Path
) -> None:
    run(environment(native, tmp_path, "100m", **BLOCKS), program("memory_rules"), "last-block")


@pytest.mark.parametrize("seed", range(2))
def test_no_order_of_allocators_is_charged_less_under_other_steps(
    seed: int, steps: dict[str, str], native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "120m", **steps)
    run(environ, program("memory_random"), str(seed), "3000")


def test_blocks_that_threads_share_are_released_once(
    native: Path, program: Program, tmp_path: Path
) -> None:
    run(environment(native, tmp_path, "200m", **BLOCKS), program("memory_threads"), "1")


def test_blocks_end_with_their_context(native: Path, program: Program, tmp_path: Path) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_DEVICES="1", **BLOCKS)
    run(environ, program("memory_rules"), "contexts")
