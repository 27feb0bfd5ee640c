"""A limit of time holds for programs that end soon, use many contexts, or vary their kernels.

The oracle is the stub's device, on which each kernel takes exactly the configured time.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.time_user import BURST_S, MILLISECOND, Container, share_of

pytestmark = pytest.mark.alone

LIMIT = 10
POINTS = 3.0
"""How far a window's use may be from the limit."""

BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1"}
EVASIONS = [
    ("exit", 50, 2.5, {}),
    ("_exit", 2, 1.5, {}),
    ("killed", 50, 2.5, {}),
    ("contexts", 150, 2.5, {}),
    ("handler", 50, 2.5, {}),
    ("blocking", 50, 2.5, BLOCKING),
    ("known", 200, 4.0, {}),
    ("unmeasured", 100, 2.6, {}),
    pytest.param("kill", 50, 2.5, {}, marks=pytest.mark.long),
    pytest.param("exit", 200, 9.0, {}, marks=pytest.mark.long),
    pytest.param("contexts", 300, 12.0, {}, marks=pytest.mark.long),
    pytest.param("known", 300, 12.0, {}, marks=pytest.mark.long),
    pytest.param("known", 900, 30.0, {}, marks=pytest.mark.long),
    pytest.param("unmeasured", 300, 12.0, {}, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("way", "kernel_ms", "seconds", "settings"), EVASIONS)
def test_the_limit_holds_when_a_program(
    way: str,
    kernel_ms: int,
    seconds: float,
    settings: dict[str, str],
    native: Path,
    tmp_path: Path,
    program: Callable[[str], Path],
) -> None:
    """The last kernel may begin before the window ends, and takes its whole time."""
    container = Container(native, tmp_path)
    container.environment = {"VGPU_STUB_STATE": str(tmp_path / "machine")}
    arguments = (way, str(kernel_ms * MILLISECOND), str(seconds))
    settings = {"CUDA_DEVICE_SM_LIMIT": str(LIMIT), **settings}
    used = share_of(container.run(program("time/evasions"), *arguments, **settings))
    last = 100 * kernel_ms / 1000 / seconds
    assert 0 < used <= LIMIT + POINTS + LIMIT * BURST_S / seconds + last
