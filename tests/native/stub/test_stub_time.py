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
    one = users(VGPU_STUB_KERNEL_NS=str(3000 * MS))
    begin = time.monotonic()
    _launch(one)
    assert one.call("cuStreamQuery", 0) == NOT_READY
    one.ok("cuStreamSynchronize", 0)
    assert time.monotonic() - begin >= 3
    assert one.call("cuStreamQuery", 0) == 0
    assert one.call("vgpu_stub_busy_ns", 0) == 3000 * MS


def test_without_a_duration_kernels_take_no_time(users: Users) -> None:
    one = users()
    _launch(one)
    assert one.call("cuStreamQuery", 0) == 0
    assert one.call("vgpu_stub_busy_ns", 0) == 0


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
    one, two = users(VGPU_STUB_DEVICES="2"), users(begin=False)
    two.begin(device=1)
    for each in (one, two):
        each.call("vgpu_stub_kernel_ns", 100 * MS)
        _launch(each)
    for each in (one, two):
        each.ok("cuCtxSynchronize")
    assert one.call("vgpu_stub_busy_ns", 0) == 100 * MS
    assert one.call("vgpu_stub_busy_ns", 1) == 100 * MS


def test_work_that_is_queued_does_not_count_as_done(users: Users) -> None:
    one = users(VGPU_STUB_KERNEL_NS=str(5000 * MS))
    _launch(one)
    assert one.call("vgpu_stub_busy_ns", 0) < 4000 * MS


def test_a_launch_waits_when_1024_kernels_are_queued(users: Users) -> None:
    one = users(VGPU_STUB_KERNEL_NS=str(200 * MS))
    _launch(one)
    one.call("vgpu_stub_kernel_ns", 1)
    begin = time.monotonic()
    for _ in range(1023):
        _launch(one)
    queued = time.monotonic() - begin
    _launch(one)
    assert time.monotonic() - begin >= 0.15 or queued > 0.15, "the machine is slow"


def test_the_grid_can_scale_a_kernels_time(users: Users) -> None:
    one = users(VGPU_STUB_GRID_NS=str(MS))
    _launch(one, grid=30)
    one.ok("cuCtxSynchronize")
    assert one.call("vgpu_stub_busy_ns", 0) == 30 * MS


@pytest.mark.parametrize("form", ["cuLaunchKernel", "cuLaunchCooperativeKernel"])
@pytest.mark.parametrize("suffix", ["", "_ptsz"])
def test_every_form_of_a_launch_takes_time(users: Users, form: str, suffix: str) -> None:
    one = users(VGPU_STUB_KERNEL_NS=str(MS))
    _launch(one, form=form + suffix)
    one.ok("cuCtxSynchronize")
    assert one.call("vgpu_stub_busy_ns", 0) == MS


def test_a_null_stream_is_the_threads_own_in_the_ptsz_forms(users: Users) -> None:
    one = users(VGPU_STUB_KERNEL_NS=str(5000 * MS))
    _launch(one, form="cuLaunchKernel")
    assert one.call("cuStreamQuery_ptsz", 0) == 0
    assert one.call("cuStreamQuery", 2) == 0
    assert one.call("cuStreamQuery", 0) == NOT_READY


def test_events_measure_what_the_card_did(users: Users) -> None:
    one = users(VGPU_STUB_KERNEL_NS=str(1500 * MS))
    stream = one.ok("cuStreamCreate", OUT, 1)
    begin, end = (one.ok("cuEventCreate", OUT, 0) for _ in range(2))
    _launch(one, stream)  # all that follows is queued while this runs
    one.call("vgpu_stub_kernel_ns", 50 * MS)
    one.ok("cuEventRecord", begin, stream)
    _launch(one, stream)
    _launch(one, stream)
    one.ok("cuEventRecord", end, stream)
    assert one.call("cuEventQuery", end) == NOT_READY
    assert one.call("cuEventElapsedTime", OUT, begin, end) == NOT_READY
    one.ok("cuEventSynchronize", end)
    one.ok("cuEventElapsedTime", OUT, begin, end)
    assert struct.unpack_from("<f", one.out[0])[0] == pytest.approx(100, abs=0.01)


def test_an_event_without_time_cannot_be_measured(users: Users) -> None:
    one = users()
    events = [one.ok("cuEventCreate", OUT, 2) for _ in range(2)]
    for each in events:
        one.ok("cuEventRecord", each, 0)
    assert one.call("cuEventElapsedTime", OUT, *events) == 400


def test_a_stream_waits_for_an_event_of_another(users: Users) -> None:
    one = users(VGPU_STUB_KERNEL_NS=str(5000 * MS))
    first, second = (one.ok("cuStreamCreate", OUT, 1) for _ in range(2))
    event = one.ok("cuEventCreate", OUT, 0)
    _launch(one, first)
    assert one.call("cuStreamQuery", second) == 0
    one.ok("cuEventRecord", event, first)
    one.ok("cuStreamWaitEvent", second, event, 0)
    assert one.call("cuStreamQuery", second) == NOT_READY


def test_a_captured_stream_does_its_work_when_the_graph_is_launched(users: Users) -> None:
    one = users(VGPU_STUB_KERNEL_NS=str(10 * MS))
    stream = one.ok("cuStreamCreate", OUT, 1)
    one.ok("cuStreamBeginCapture_v2", stream, 0)
    assert one.ok("cuStreamIsCapturing", stream, OUT) == 1
    for _ in range(3):
        _launch(one, stream)
    graph = one.ok("cuStreamEndCapture", stream, OUT)
    assert one.ok("cuStreamIsCapturing", stream, OUT) == 0
    ready = one.ok("cuGraphInstantiateWithFlags", OUT, graph, 0)
    assert one.call("vgpu_stub_busy_ns", 0) == 0
    for _ in range(2):
        one.ok("cuGraphLaunch", ready, stream)
    assert _timed(one, "cuStreamSynchronize", stream) >= 0
    assert one.call("vgpu_stub_busy_ns", 0) == 60 * MS


def test_another_stream_joins_a_capture_by_an_event(users: Users) -> None:
    one = users(VGPU_STUB_KERNEL_NS=str(10 * MS))
    first, second = (one.ok("cuStreamCreate", OUT, 1) for _ in range(2))
    event = one.ok("cuEventCreate", OUT, 2)
    one.ok("cuStreamBeginCapture_v2", first, 0)
    one.ok("cuEventRecord", event, first)
    one.ok("cuStreamWaitEvent", second, event, 0)
    _launch(one, second)
    graph = one.ok("cuStreamEndCapture", first, OUT)
    one.ok("cuGraphGetNodes", graph, 0, OUT)
    assert one.word() == 1
    assert one.ok("cuStreamIsCapturing", second, OUT) == 0


def test_calls_that_might_wait_break_a_capture(users: Users) -> None:
    one = users()
    stream = one.ok("cuStreamCreate", OUT, 1)
    event = one.ok("cuEventCreate", OUT, 0)
    one.ok("cuEventRecord", event, 0)
    one.ok("cuStreamBeginCapture_v2", stream, 0)
    assert one.call("cuEventQuery", event) == UNSUPPORTED
    assert one.call("cuStreamEndCapture", stream, OUT) == INVALIDATED
    one.ok("cuStreamBeginCapture_v2", stream, 0)
    one.ok("cuThreadExchangeStreamCaptureMode", {"inout": "02000000"})
    one.ok("cuEventQuery", event)
    one.ok("cuStreamEndCapture", stream, OUT)


def test_memory_in_a_capture_is_the_graphs(users: Users) -> None:
    one = users()
    stream = one.ok("cuStreamCreate", OUT, 1)
    one.ok("cuStreamBeginCapture_v2", stream, 0)
    at = one.ok("cuMemAllocAsync", OUT, 1 << 20, stream)
    one.ok("cuMemFreeAsync", at, stream)
    graph = one.ok("cuStreamEndCapture", stream, OUT)
    ready = one.ok("cuGraphInstantiateWithFlags", OUT, graph, 0)
    assert one.used() == 0
    for _ in range(3):
        one.ok("cuGraphLaunch", ready, stream)
    assert one.used() == 2 << 20


def test_a_graph_keeps_its_own_copy_of_what_it_launches(users: Users) -> None:
    one = users(VGPU_STUB_GRID_NS=str(MS))
    graph = one.ok("cuGraphCreate", OUT, 0)
    node = one.ok("cuGraphAddKernelNode_v2", OUT, graph, 0, 0, _kernel(grid=2))
    ready = one.ok("cuGraphInstantiateWithFlags", OUT, graph, 0)
    one.ok("cuGraphKernelNodeSetParams_v2", node, _kernel(grid=50))
    one.ok("cuGraphLaunch", ready, 0)
    one.ok("cuCtxSynchronize")
    assert one.call("vgpu_stub_busy_ns", 0) == 2 * MS
    one.ok("cuGraphExecKernelNodeSetParams_v2", ready, node, _kernel(grid=3))
    one.ok("cuGraphLaunch", ready, 0)
    one.ok("cuCtxSynchronize")
    assert one.call("vgpu_stub_busy_ns", 0) == 5 * MS


def _kernel(grid: int) -> dict[str, str]:
    return {"in": (struct.pack("<QIIIIIII", 1, grid, 1, 1, 1, 1, 1, 0) + bytes(36)).hex()}
