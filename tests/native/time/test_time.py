"""A limit of time holds, whichever way a device is kept busy, and little of it is lost.

The oracle is the stub's device, on which each kernel takes exactly the configured time.
"""

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from native.harness.builds import NATIVE
from native.harness.card_user import CardUser
from native.harness.memory_user import environment, run
from native.harness.time_user import (
    MICROSECOND,
    MILLISECOND,
    TIMEOUT_S,
    Container,
    Load,
    best_of,
    most,
    share_of,
)

from vgpu_native.shared.layout import CORES_OFF
from vgpu_native.shared.limits_page import ContainerLimits, DeviceLimits, LimitsPage, write

pytestmark = pytest.mark.alone

SHORT, LONG = 50 * MICROSECOND, 20 * MILLISECOND
POINTS = 3.0
"""How far a window's use may be from the limit."""

Program = Callable[[str], Path]
Make = Callable[..., None]

CASES = [
    (Load("loop", SHORT), 30),
    (Load("queue", SHORT), 30),
    (Load("queue", SHORT), 90),
    (Load("queue", LONG, seconds=3.0), 10),
    (Load("loop", LONG, seconds=2.0), 50),
    (Load("graph", SHORT), 50),
    (Load("streams", SHORT), 30),
    (Load("threads", SHORT), 30),
    (Load("mixed", SHORT), 50),
    (Load("ex", SHORT), 30),
    (Load("cooperative", SHORT), 30),
    (Load("ended-streams", SHORT), 30),
    (Load("ended-contexts", SHORT), 30),
    (Load("fork", SHORT), 30),
]
MATRIX = [
    (Load(way, kernel, seconds=10.0, warm=1.0), limit)
    for way, kernel in (
        ("loop", LONG),
        ("queue", SHORT),
        ("queue", LONG),
        ("graph", SHORT),
        ("streams", SHORT),
        ("mixed", SHORT),
    )
    for limit in (10, 30, 50, 70, 90)
]


@pytest.fixture
def container(native: Path, tmp_path: Path) -> Container:
    """Return a container without processes."""
    return Container(native, tmp_path)


def limited(container: Container, program: Program, load: Load, limit: int) -> float:
    """Return the percent of time that a process uses under a limit."""
    setting = {"CUDA_DEVICE_SM_LIMIT": str(limit)}
    return share_of(container.start(program("time_load"), load, **setting))


@pytest.mark.parametrize(("load", "limit"), CASES, ids=lambda value: getattr(value, "way", value))
def test_the_time_of_a_device_is_limited(
    load: Load, limit: int, container: Container, program: Program
) -> None:
    best_of(3, limit, load, POINTS, lambda: limited(container, program, load, limit))


def test_kernels_stay_below_the_limit_when_one_kind_varies_in_length(
    container: Container, program: Program
) -> None:
    """One in twenty takes a thousand times as long: it is met by chance, and counts for others.

    Chance decides how much a single window uses. Their mean is what the limit holds down.
    """
    load = Load("unlike", MICROSECOND, seconds=3.0)
    used = [limited(container, program, load, 30) for _ in range(2)]
    assert sum(used) / len(used) <= most(30, load, 2 * POINTS), used


@pytest.mark.long
@pytest.mark.parametrize(("load", "limit"), MATRIX, ids=lambda value: getattr(value, "way", value))
def test_ten_seconds_are_within_three_points_of_the_limit(
    load: Load, limit: int, container: Container, program: Program
) -> None:
    best_of(2, limit, load, POINTS, lambda: limited(container, program, load, limit))


def test_a_device_is_used_fully_and_unmeasured_when_there_is_no_limit(
    container: Container, program: Program
) -> None:
    load = Load("queue", SHORT, seconds=1.0)
    assert share_of(container.start(program("time_load"), load)) > 90
    assert container.budget("spent") == 0


def test_the_measured_time_equals_the_used_time(container: Container, program: Program) -> None:
    load = Load("queue", SHORT, seconds=2.0, warm=0.0)
    used = limited(container, program, load, 50) / 100 * load.seconds * 1e9
    assert container.budget("spent") == pytest.approx(used, rel=0.1)


@pytest.mark.parametrize("kernel", [SHORT, LONG], ids=["short", "long"])
def test_containers_share_a_card_by_their_limits_of_30_and_70_percent(
    kernel: int, native: Path, program: Program, tmp_path: Path
) -> None:
    load = Load("queue", kernel, seconds=3.0)
    for attempt in range(3):
        machine = {"VGPU_STUB_STATE": str(tmp_path / f"machine{attempt}")}
        started = []
        for limit in (30, 70):
            (tmp_path / f"{limit}-{attempt}").mkdir()
            sharer = Container(native, tmp_path / f"{limit}-{attempt}")
            setting = {"CUDA_DEVICE_SM_LIMIT": str(limit), **machine}
            started.append(sharer.start(program("time_load"), load, **setting))
        low, high = (share_of(process) for process in started)
        assert low <= most(30, load, 2)
        assert high <= most(70, load, 2)
        if low >= 28 and high >= 66:
            return
    raise AssertionError(f"30 and 70 percent were {low} and {high}")


@pytest.fixture
def together(
    container: Container, program: Program, tmp_path: Path, users: Callable[..., CardUser]
) -> Callable[[Load, int, int], float]:
    """Return a function that measures the share of a card that processes of a container use.

    The card reports it, over a time that is the same for all of them.
    """

    def used(load: Load, limit: int, processes: int) -> float:
        setting = {"CUDA_DEVICE_SM_LIMIT": str(limit), "VGPU_STUB_STATE": str(tmp_path / "machine")}
        endless = replace(load, seconds=TIMEOUT_S)
        started = [
            container.start(program("time_load"), endless, **setting) for _ in range(processes)
        ]
        try:
            time.sleep(load.warm)
            return card_use(users(begin=False), load.seconds)
        finally:
            for process in started:
                process.kill()
                process.communicate()

    return used


def card_use(card: CardUser, seconds: float) -> float:
    """Return the percent of some seconds for which a card has work."""
    work, begun = card.call("vgpu_stub_busy_ns", 0), time.monotonic_ns()
    time.sleep(seconds)
    more, ended = card.call("vgpu_stub_busy_ns", 0), time.monotonic_ns()
    return 100 * (more - work) / (ended - begun)


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_processes_of_a_container_share_one_limit(
    processes: int, together: Callable[[Load, int, int], float]
) -> None:
    """They begin work one after the other, so that none measures the others' as its own."""
    load = Load("queue", SHORT, seconds=2.0)
    best_of(3, 40, load, POINTS, lambda: together(load, 40, processes))


@pytest.mark.parametrize("limit", [10, 40])
def test_many_processes_that_wait_long_stay_below_the_limit(
    limit: int, together: Callable[[Load, int, int], float]
) -> None:
    """Each may go on after a while, though the limit is used; but not all of them each time."""
    load = Load("loop", LONG, seconds=4.0, warm=3.0)
    best_of(3, limit, load, POINTS, lambda: together(load, limit, 8))


def test_a_delay_during_a_measurement_is_not_measured(
    container: Container, program: Program
) -> None:
    """The device had nothing to do then, or the work of others."""
    load = Load("queue", SHORT, seconds=2.0, warm=0.0)
    container.environment["VGPU_STUB_STALL_NS"] = str(MILLISECOND)
    used = limited(container, program, load, 20) / 100 * load.seconds * 1e9
    assert container.budget("spent") < 1.3 * used


def test_a_killed_process_leaves_the_others_their_time(
    container: Container, program: Program
) -> None:
    setting = {"CUDA_DEVICE_SM_LIMIT": "30"}
    for _ in range(5):
        killed = container.start(program("time_load"), Load("queue", SHORT, seconds=60), **setting)
        time.sleep(0.2)
        killed.kill()
        killed.communicate()
    load = Load("queue", SHORT)
    best_of(3, 30, load, POINTS, lambda: limited(container, program, load, 30))


def paged(container: Container, path: Path, limit: int, flags: int = 0) -> None:
    """Give a container a limits page."""
    device = DeviceLimits("GPU-00000000-0000-0000-0000-000000000000", cores=limit)
    write(path, ContainerLimits((device,), flags))
    container.environment["GPULEDGER_LIMITS_FILE"] = str(path)


@pytest.mark.parametrize(("before", "after"), [(20, 60), (60, 20), (100, 30), (30, 100)])
def test_a_change_of_the_limit_holds_at_once(
    before: int, after: int, container: Container, program: Program, tmp_path: Path
) -> None:
    path = tmp_path / "limits"
    load = Load("queue", SHORT, warm=1.5)

    def changed() -> float:
        path.unlink(missing_ok=True)
        paged(container, path, before)
        process = container.start(program("time_load"), load)
        time.sleep(0.8)
        with LimitsPage(path) as page:
            device = page.limits.devices[0]
            page.change(ContainerLimits((DeviceLimits(device.uuid, device.memory, cores=after),)))
        return share_of(process)

    best_of(3, after, load, POINTS, changed)


def test_a_page_can_switch_the_limit_of_time_off(
    container: Container, program: Program, tmp_path: Path
) -> None:
    paged(container, tmp_path / "limits", 20, CORES_OFF)
    assert share_of(container.start(program("time_load"), Load("queue", SHORT))) > 80


def test_the_environment_cannot_switch_off_a_limit_of_the_page(
    container: Container, program: Program, tmp_path: Path
) -> None:
    paged(container, tmp_path / "limits", 20)
    load = Load("queue", SHORT)
    settings = {"GPU_CORE_UTILIZATION_POLICY": "disable", "CoreLimitSwitch": "false"}
    used = share_of(container.start(program("time_load"), load, **settings))
    assert used <= most(20, load, POINTS)


@pytest.mark.parametrize("name", ["GPU_CORE_UTILIZATION_POLICY", "CoreLimitSwitch"])
def test_the_environment_switches_the_limit_off_when_there_is_no_page(
    name: str, container: Container, program: Program
) -> None:
    settings = {"CUDA_DEVICE_SM_LIMIT": "20", name: "disable"}
    load = Load("queue", SHORT, seconds=0.5)
    assert share_of(container.start(program("time_load"), load, **settings)) > 80


def overrun(container: Container, program: Program) -> float:
    """Return the percent of two seconds that long kernels use, queued from the start on."""
    return limited(container, program, Load("queue", LONG, seconds=2.0, warm=0.0), 10)


def test_a_queue_of_long_kernels_does_not_overrun_the_limit(
    container: Container, program: Program
) -> None:
    """Four kernels of which nothing is known may begin, of 20 ms each."""
    assert overrun(container, program) <= most(10, Load("queue", LONG, seconds=2.0), POINTS) + 4


def test_a_library_that_charges_work_when_it_has_ended_overruns(
    native: Path, make_checked: Make, program: Program, tmp_path: Path
) -> None:
    broken = native / "time" / "uncharged_queue" / "libvgpu.so"
    make_checked(str(broken))
    assert overrun(Container(native, tmp_path, broken), program) > 25


@pytest.mark.parametrize(
    ("kind", "seconds"), [("plain", 1), ("lost_charges", 1), ("two_begin", 60)]
)
def test_the_budget_counts_each_charge_once_and_lets_one_process_begin(
    kind: str, seconds: int, native: Path, make_checked: Make
) -> None:
    """Though processes are killed, and though they ask at the same time."""
    budget = native / "time" / kind / "budget"
    make_checked(str(budget))
    command = [str(budget), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode == 0) == (kind == "plain"), done.stdout


@pytest.mark.parametrize(
    ("kind", "exact"), [("plain", True), ("lost_launches", False), ("counted_choice", False)]
)
def test_launches_are_paid_exactly_and_charged_what_they_take(
    kind: str, exact: bool, native: Path, make_checked: Make
) -> None:
    """Threads make exactly the paid launches, and the charge is right for any order of lengths."""
    costs = native / "time" / kind / "kernel_costs"
    make_checked(str(costs))
    done = subprocess.run([costs], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode == 0) == exact, done.stdout


def test_a_launch_leaves_its_thread_unchanged_when_no_thread_starts(
    native: Path, tmp_path: Path, program: Program
) -> None:
    environ = environment(native, tmp_path, "0", CUDA_DEVICE_SM_LIMIT="50")
    run({**environ, "VGPU_STUB_GRID_NS": "2000000"}, program("time_without_threads"))


def test_no_thread_waits_for_one_that_was_cancelled_while_launching(
    native: Path, tmp_path: Path, program: Program
) -> None:
    slow = {"CUDA_DEVICE_SM_LIMIT": "50", "VGPU_STUB_DELAY_NS": "300000"}
    run(environment(native, tmp_path, "0", **slow), program("time_cancelled"))


SOURCES = [*sorted((NATIVE / "src" / "time").rglob("*.c")), NATIVE / "src" / "util" / "clock.h"]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_only_the_monotonic_clock_is_read(source: Path) -> None:
    assert not re.findall(
        r"CLOCK_(?!MONOTONIC)\w+|\bgettimeofday\b|\bnanosleep\(|\btime\(", source.read_text()
    )
