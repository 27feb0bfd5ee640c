"""A limit of time holds for launches of any length, in any order, and for the first of each kernel.

The oracle is the stub's device, on which each kernel takes exactly the configured time.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
from native.harness.time_user import (
    MICROSECOND,
    MILLISECOND,
    TIMEOUT_S,
    Container,
    Pattern,
    best_of,
    most,
    share_of,
)

pytestmark = pytest.mark.alone

US, MS = MICROSECOND, MILLISECOND
POINTS = 3.0
"""How far a window's use may be from the limit."""
WINDOWS = 4
"""Most windows of a program that hides rare long launches."""

Program = Callable[[str], Path]

PATTERNS = [
    (Pattern("queue", 2 * US, 10 * US, 2), 30),
    (Pattern("queue", 2 * US, 2 * MS, 8), 30),
    (Pattern("queue", 20 * US, 1000 * US, 4), 90),
    (Pattern("loop", 10 * US, 10 * MS, 8), 50),
    (Pattern("refused", 2 * US, 1000 * US), 30),
]
MATRIX = [
    (Pattern(way, short, short * ratio, period, seconds=4.0, warm=1.0), limit)
    for way, short in (("loop", 20 * US), ("queue", 2 * US), ("queue", 20 * US))
    for period in (2, 4, 8)
    for ratio in (5, 50, 1000)
    for limit in (10, 30, 50, 90)
    if way == "queue" or ratio == 1000
]
TRICKS = [
    Pattern("after-slow", 2 * US, 1000 * US, 100),
    Pattern("bursts", 2 * US, 1000 * US, 3000, seconds=3.0),
]
LOADING = {"VGPU_STUB_LOAD_NS": str(20 * MS)}
OLD_DRIVER = {"VGPU_STUB_VERSION": "12000"}
EVENTS = {"VGPU_STUB_EVENT_NS": "1700", "VGPU_STUB_TICK_NS": "500"}


@pytest.fixture
def container(native: Path, tmp_path: Path) -> Container:
    """Return a container without processes."""
    return Container(native, tmp_path)


@pytest.fixture
def used(container: Container, program: Program) -> Callable[..., float]:
    """Return a function that measures the percent of time that a pattern uses under a limit."""

    def measured(pattern: Pattern, limit: int, **settings: str) -> float:
        settings = {"CUDA_DEVICE_SM_LIMIT": str(limit), **settings}
        return share_of(container.start(program("time/patterns"), pattern, **settings))

    return measured


def ident(value: object) -> str | None:
    """Return the name of a pattern."""
    if not isinstance(value, Pattern):
        return None
    return f"{value.way}-{value.period}-{value.short_ns // US}-{value.long_ns // US}"


@pytest.mark.parametrize(("pattern", "limit"), PATTERNS, ids=ident)
def test_the_limit_holds_when_long_launches_come_in_a_pattern(
    pattern: Pattern, limit: int, used: Callable[..., float]
) -> None:
    best_of(3, limit, pattern, POINTS, lambda: used(pattern, limit))


@pytest.mark.long
@pytest.mark.parametrize(("pattern", "limit"), MATRIX, ids=ident)
def test_all_patterns_are_within_three_points_of_the_limit(
    pattern: Pattern, limit: int, used: Callable[..., float]
) -> None:
    best_of(3, limit, pattern, POINTS, lambda: used(pattern, limit))


@pytest.mark.parametrize("pattern", TRICKS, ids=ident)
def test_the_limit_holds_when_a_program_hides_long_launches(
    pattern: Pattern, used: Callable[..., float]
) -> None:
    """A window may use more, because chance decides when a rare launch is found.

    Ten windows of bursts used 15 to 35 % each and 27 % together, so up to four count together.
    """
    percent = [used(pattern, 30)]
    while fmean(percent) > most(30, pattern, POINTS) and len(percent) < WINDOWS:
        percent.append(used(pattern, 30))
    assert fmean(percent) <= most(30, pattern, POINTS), percent


@pytest.mark.parametrize("driver", [{}, OLD_DRIVER], ids=["now", "12.0"])
def test_kernels_that_are_launched_once_are_limited(
    driver: dict[str, str], used: Callable[..., float]
) -> None:
    """Each is loaded by its first launch; at most a third of the time is left to the device."""
    pattern = Pattern("fresh-queue", 10 * MS)
    best_of(3, 10, pattern, POINTS, lambda: used(pattern, 10, **LOADING, **driver))


@pytest.mark.parametrize("driver", [{}, OLD_DRIVER], ids=["now", "12.0"])
def test_the_time_of_loading_is_not_charged(
    driver: dict[str, str], used: Callable[..., float]
) -> None:
    """A kernel of 10 us after 20 ms of loading: 0.05 percent, and no launch has to wait."""
    pattern = Pattern("fresh-loop", 10 * US, seconds=1.0)
    assert used(pattern, 10, **LOADING, **driver) >= 0.03


@pytest.mark.long
@pytest.mark.parametrize("limit", [10, 30, 50, 90])
def test_fresh_kernels_are_limited_at_every_limit(limit: int, used: Callable[..., float]) -> None:
    pattern = Pattern("fresh-queue", 5 * MS, seconds=4.0)
    best_of(3, limit, pattern, POINTS, lambda: used(pattern, limit))


@pytest.mark.parametrize(
    ("kernel_ns", "limit", "seconds"),
    [(200 * MS, 50, 2.4), pytest.param(500 * MS, 10, 20.0, marks=pytest.mark.long)],
)
def test_a_queue_of_kernels_that_are_longer_than_a_burst_is_limited(
    kernel_ns: int, limit: int, seconds: float, used: Callable[..., float]
) -> None:
    pattern = Pattern("queue", kernel_ns, seconds=seconds, warm=1.0)
    best_of(3, limit, pattern, POINTS, lambda: used(pattern, limit))


def test_processes_that_wait_for_each_other_go_on_within_the_limit(
    container: Container, program: Program, tmp_path: Path
) -> None:
    settings = {"CUDA_DEVICE_SM_LIMIT": "50", "VGPU_STUB_STATE": str(tmp_path / "machine")}
    process = container.run(program("time/ranks"), "5", str(150 * MS), **settings)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    share, longest_ms = map(float, out.split())
    assert 40 <= share <= 50 + POINTS + 5
    assert longest_ms < 2000


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        (Pattern("queue", 5 * US, seconds=1.0), 50),
        (Pattern("queue", 20 * US, seconds=1.0), 90),
    ],
    ids=ident,
)
def test_the_time_of_events_is_not_charged(
    pattern: Pattern, limit: int, used: Callable[..., float]
) -> None:
    best_of(3, limit, pattern, POINTS, lambda: used(pattern, limit, **EVENTS))


@pytest.mark.parametrize("way", ["destroy", "green", "reset"])
@pytest.mark.parametrize("anew", ["0", "1"])
def test_launches_are_measured_when_contexts_ended_unseen(
    way: str, anew: str, container: Container, program: Program
) -> None:
    settings = {"CUDA_DEVICE_SM_LIMIT": "50", "VGPU_STUB_CONTEXT_ANEW": anew}
    process = container.run(program("time/ended"), way, **settings)
    _out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
