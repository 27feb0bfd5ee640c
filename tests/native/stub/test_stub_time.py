"""The stub driver's cards are busy as real ones are: kernels take turns while time passes."""

import struct
import time
from collections.abc import Callable

import pytest
from native.harness.card_user import OUT, CardUser

MS = 1_000_000
INVALIDATED, UNSUPPORTED, NOT_READY = 901, 900, 600
Users = Callable[..., CardUser]


def _launch(user: CardUser, stream: int = 0, grid: int = 1, form: str = "cuLaunchKernel") -> None:
    user.ok(form, 1, grid, 1, 1, 1, 1, 1, 0, stream, 0, 0)


def _timed(user: CardUser, function: str, *arguments: int) -> float:
    begin = time.monotonic()
    user.ok(function, *arguments)
    return time.monotonic() - begin


def test_a_launch_returns_before_its_kernel_has_run(users: Users) -> None:
    user = users(VGPU_STUB_KERNEL_NS=str(3000 * MS))
    begin = time.monotonic()
    _launch(user)
    assert user.call("cuStreamQuery", 0) == NOT_READY
    user.ok("cuStreamSynchronize", 0)
    assert time.monotonic() - begin >= 3
    assert user.call("cuStreamQuery", 0) == 0
    assert user.call("vgpu_stub_busy_ns", 0) == 3000 * MS


def test_without_a_duration_kernels_take_no_time(users: Users) -> None:
    user = users()
    _launch(user)
    assert user.call("cuStreamQuery", 0) == 0
    assert user.call("vgpu_stub_busy_ns", 0) == 0


def test_kernels_of_two_processes_run_one_after_the_other(users: Users) -> None:
    both = [users(), users()]
    for each in both:
        each.call("vgpu_stub_kernel_ns", 10 * MS)
    begin = time.monotonic()
    for _ in range(15):
        for each in both:
            _launch(each)
    for each in both:
        each.ok("cuCtxSynchronize")
    assert time.monotonic() - begin >= 0.3
    assert both[0].call("vgpu_stub_busy_ns", 0) == 300 * MS


def test_cards_run_side_by_side(users: Users) -> None:
    user, two = users(VGPU_STUB_DEVICES="2"), users(begin=False)
    two.begin(device=1)
    for each in (user, two):
        each.call("vgpu_stub_kernel_ns", 100 * MS)
        _launch(each)
    for each in (user, two):
        each.ok("cuCtxSynchronize")
    assert user.call("vgpu_stub_busy_ns", 0) == 100 * MS
    assert user.call("vgpu_stub_busy_ns", 1) == 100 * MS


def test_work_that_is_queued_does_not_count_as_done(users: Users) -> None:
    user = users(VGPU_STUB_KERNEL_NS=str(5000 * MS))
    _launch(user)
    assert user.call("vgpu_stub_busy_ns", 0) < 4000 * MS


def test_a_launch_waits_when_1024_kernels_are_queued(users: Users) -> None:
    user = users(VGPU_STUB_KERNEL_NS=str(200 * MS))
    _launch(user)
    user.call("vgpu_stub_kernel_ns", 1)
    begin = time.monotonic()
    for _ in range(1023):
        _launch(user)
    queued = time.monotonic() - begin
    _launch(user)
    assert time.monotonic() - begin >= 0.15 or queued > 0.15, "the machine is slow"


def test_the_grid_can_scale_a_kernels_time(users: Users) -> None:
    user = users(VGPU_STUB_GRID_NS=str(MS))
    _launch(user, grid=30)
    user.ok("cuCtxSynchronize")
    assert user.call("vgpu_stub_busy_ns", 0) == 30 * MS


@pytest.mark.parametrize("form", ["cuLaunchKernel", "cuLaunchCooperativeKernel"])
@pytest.mark.parametrize("suffix", ["", "_ptsz"])
def test_every_form_of_a_launch_takes_time(users: Users, form: str, suffix: str) -> None:
    user = users(VGPU_STUB_KERNEL_NS=str(MS))
    _launch(user, form=form + suffix)
    user.ok("cuCtxSynchronize")
    assert user.call("vgpu_stub_busy_ns", 0) == MS


def test_a_null_stream_is_the_threads_own_in_the_ptsz_forms(users: Users) -> None:
    user = users(VGPU_STUB_KERNEL_NS=str(5000 * MS))
    _launch(user, form="cuLaunchKernel")
    assert user.call("cuStreamQuery_ptsz", 0) == 0
    assert user.call("cuStreamQuery", 2) == 0
    assert user.call("cuStreamQuery", 0) == NOT_READY


def test_events_measure_what_the_card_did(users: Users) -> None:
    user = users(VGPU_STUB_KERNEL_NS=str(1500 * MS))
    stream = user.ok("cuStreamCreate", OUT, 1)
    begin, end = (user.ok("cuEventCreate", OUT, 0) for _ in range(2))
    _launch(user, stream)  # all that follows is queued while this runs
    user.call("vgpu_stub_kernel_ns", 50 * MS)
    user.ok("cuEventRecord", begin, stream)
    _launch(user, stream)
    _launch(user, stream)
    user.ok("cuEventRecord", end, stream)
    assert user.call("cuEventQuery", end) == NOT_READY
    assert user.call("cuEventElapsedTime", OUT, begin, end) == NOT_READY
    user.ok("cuEventSynchronize", end)
    user.ok("cuEventElapsedTime", OUT, begin, end)
    assert struct.unpack_from("<f", user.out[0])[0] == pytest.approx(100, abs=0.01)


def test_an_event_without_time_cannot_be_measured(users: Users) -> None:
    user = users()
    events = [user.ok("cuEventCreate", OUT, 2) for _ in range(2)]
    for each in events:
        user.ok("cuEventRecord", each, 0)
    assert user.call("cuEventElapsedTime", OUT, *events) == 400


def test_a_stream_waits_for_an_event_of_another(users: Users) -> None:
    user = users(VGPU_STUB_KERNEL_NS=str(5000 * MS))
    first, second = (user.ok("cuStreamCreate", OUT, 1) for _ in range(2))
    event = user.ok("cuEventCreate", OUT, 0)
    _launch(user, first)
    assert user.call("cuStreamQuery", second) == 0
    user.ok("cuEventRecord", event, first)
    user.ok("cuStreamWaitEvent", second, event, 0)
    assert user.call("cuStreamQuery", second) == NOT_READY


def test_a_captured_stream_does_its_work_when_the_graph_is_launched(users: Users) -> None:
    user = users(VGPU_STUB_KERNEL_NS=str(10 * MS))
    stream = user.ok("cuStreamCreate", OUT, 1)
    user.ok("cuStreamBeginCapture_v2", stream, 0)
    assert user.ok("cuStreamIsCapturing", stream, OUT) == 1
    for _ in range(3):
        _launch(user, stream)
    graph = user.ok("cuStreamEndCapture", stream, OUT)
    assert user.ok("cuStreamIsCapturing", stream, OUT) == 0
    ready = user.ok("cuGraphInstantiateWithFlags", OUT, graph, 0)
    assert user.call("vgpu_stub_busy_ns", 0) == 0
    for _ in range(2):
        user.ok("cuGraphLaunch", ready, stream)
    assert _timed(user, "cuStreamSynchronize", stream) >= 0
    assert user.call("vgpu_stub_busy_ns", 0) == 60 * MS


def test_another_stream_joins_a_capture_by_an_event(users: Users) -> None:
    user = users(VGPU_STUB_KERNEL_NS=str(10 * MS))
    first, second = (user.ok("cuStreamCreate", OUT, 1) for _ in range(2))
    event = user.ok("cuEventCreate", OUT, 2)
    user.ok("cuStreamBeginCapture_v2", first, 0)
    user.ok("cuEventRecord", event, first)
    user.ok("cuStreamWaitEvent", second, event, 0)
    _launch(user, second)
    graph = user.ok("cuStreamEndCapture", first, OUT)
    user.ok("cuGraphGetNodes", graph, 0, OUT)
    assert user.word() == 1
    assert user.ok("cuStreamIsCapturing", second, OUT) == 0


def test_calls_that_might_wait_break_a_capture(users: Users) -> None:
    user = users()
    stream = user.ok("cuStreamCreate", OUT, 1)
    event = user.ok("cuEventCreate", OUT, 0)
    user.ok("cuEventRecord", event, 0)
    user.ok("cuStreamBeginCapture_v2", stream, 0)
    assert user.call("cuEventQuery", event) == UNSUPPORTED
    assert user.call("cuStreamEndCapture", stream, OUT) == INVALIDATED
    user.ok("cuStreamBeginCapture_v2", stream, 0)
    user.ok("cuThreadExchangeStreamCaptureMode", {"inout": "02000000"})
    user.ok("cuEventQuery", event)
    user.ok("cuStreamEndCapture", stream, OUT)


def test_memory_in_a_capture_is_the_graphs(users: Users) -> None:
    user = users()
    stream = user.ok("cuStreamCreate", OUT, 1)
    user.ok("cuStreamBeginCapture_v2", stream, 0)
    at = user.ok("cuMemAllocAsync", OUT, 1 << 20, stream)
    user.ok("cuMemFreeAsync", at, stream)
    graph = user.ok("cuStreamEndCapture", stream, OUT)
    ready = user.ok("cuGraphInstantiateWithFlags", OUT, graph, 0)
    assert user.used() == 0
    for _ in range(3):
        user.ok("cuGraphLaunch", ready, stream)
    assert user.used() == 2 << 20


def test_a_graph_keeps_its_own_copy_of_what_it_launches(users: Users) -> None:
    user = users(VGPU_STUB_GRID_NS=str(MS))
    graph = user.ok("cuGraphCreate", OUT, 0)
    node = user.ok("cuGraphAddKernelNode_v2", OUT, graph, 0, 0, _kernel(grid=2))
    ready = user.ok("cuGraphInstantiateWithFlags", OUT, graph, 0)
    user.ok("cuGraphKernelNodeSetParams_v2", node, _kernel(grid=50))
    user.ok("cuGraphLaunch", ready, 0)
    user.ok("cuCtxSynchronize")
    assert user.call("vgpu_stub_busy_ns", 0) == 2 * MS
    user.ok("cuGraphExecKernelNodeSetParams_v2", ready, node, _kernel(grid=3))
    user.ok("cuGraphLaunch", ready, 0)
    user.ok("cuCtxSynchronize")
    assert user.call("vgpu_stub_busy_ns", 0) == 5 * MS


def _kernel(grid: int) -> dict[str, str]:
    return {"in": (struct.pack("<QIIIIIII", 1, grid, 1, 1, 1, 1, 1, 0) + bytes(36)).hex()}
