"""The parts in their order: probable failures come first, because the budget ends the list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_check.bench import Bench
from gpu_check.outcome import Findings
from gpu_check.parts import costs, drift, driver, memory, shares, users


@dataclass(frozen=True)
class Part:
    """One part: its question, the range that is expected, and the file to read first if it fails.

    `seconds` and `quick` are its usual durations on a GPU and on the stub. A part that compares
    another library does not count as a promise.
    """

    name: str
    asks: str
    expected: str
    first_file: str
    measure: Callable[[Bench], Findings]
    seconds: float
    quick: float
    promise: bool = True


SHARE = f"the limit, {shares.POINTS:.0f} points more or less"
CHARGED = f"charged is at most {memory.TOLERANCE_MIB:.0f} MiB below NVML's count"
SRC = "vgpu_native/src"

PARTS = (
    Part(
        "machine",
        "Which card and driver is it, and how long is a kernel?",
        "a calibrated kernel",
        "vgpu_native/tests/gpu/programs/probe.c",
        driver.machine,
        6,
        2,
    ),
    Part(
        "control",
        "Does this check notice that no library is loaded?",
        "more than the limits",
        "vgpu_native/tests/gpu/gpu_check/parts/driver.py",
        driver.without_library,
        5,
        2,
    ),
    Part(
        "short-kernels",
        "Do kernels of 5, 50, 500 and 5,000 us get their share of time?",
        SHARE,
        f"{SRC}/time/events/event_times.c",
        shares.short_kernels,
        60,
        7,
    ),
    Part(
        "fresh-kernels",
        "Is loading a kernel at its first launch charged as its time?",
        "at most 200 ms more than its work at its share",
        f"{SRC}/time/launch_meter.c",
        shares.fresh_kernels,
        20,
        3,
    ),
    Part(
        "patterns",
        "Do kernels that differ in length in a period of 2, 4 or 8 get their share?",
        SHARE,
        f"{SRC}/time/kernel_costs.c",
        shares.patterns,
        45,
        5,
    ),
    Part(
        "granules",
        "Does the driver take more for small allocations and arrays than is charged?",
        CHARGED,
        f"{SRC}/memory/granularity/granularity.c",
        memory.granules,
        12,
        2,
    ),
    Part(
        "process-memory",
        "Are contexts, modules and streams charged when they are made?",
        CHARGED,
        f"{SRC}/contexts/context_charge.c",
        memory.process_memory,
        8,
        2,
    ),
    Part(
        "heaps",
        "Are heaps, stacks and arrays of modules charged?",
        CHARGED,
        f"{SRC}/contexts/context_limits.c",
        memory.heaps,
        8,
        2,
    ),
    Part(
        "long-kernels",
        "Do kernels of 200 and 500 ms get their share?",
        f"the limit, {shares.LONG_POINTS:.0f} points more or less",
        f"{SRC}/time/launch_pacing.c",
        shares.long_kernels,
        32,
        4,
    ),
    Part(
        "tenants",
        "Do two containers on one card get their shares beside each other?",
        f"the limit, at most {shares.POINTS:.0f} points more, {shares.LONG_POINTS:.0f} less",
        f"{SRC}/time/launch_samples.c",
        shares.tenants,
        24,
        4,
    ),
    Part(
        "exit",
        "Does a process end normally while its launches are queued and measured?",
        "the status of each end, within 10 s",
        f"{SRC}/time/launch_meter.c",
        driver.ends,
        12,
        3,
    ),
    Part(
        "pools",
        "Do pools near the limit get what is left, and nothing above it?",
        "40 to 80 of the last 80 MiB",
        f"{SRC}/memory/charges/memory_pools.c",
        memory.pools,
        4,
        1,
    ),
    Part(
        "free-async",
        "Is memory charged that is freed behind a kernel that still runs?",
        CHARGED,
        f"{SRC}/memory/stream_ordered.c",
        memory.free_async,
        4,
        2,
    ),
    Part(
        "handles",
        "Is imported memory charged when its maker has released it?",
        CHARGED,
        f"{SRC}/core/shared_memory.c",
        memory.handles,
        6,
        2,
    ),
    Part(
        "names",
        "Does the driver have functions that the library's table lacks?",
        "none whose name looks as if it allocated or launched",
        "vgpu_native/tools/functions.toml",
        driver.names,
        8,
        2,
    ),
    Part(
        "drift",
        "Would the agent evict a container that bypasses nothing?",
        f"at most {drift.SLACK_MIB:.0f} MiB uncharged by process",
        "vgpu_native/agent/bypass_detection.py",
        drift.drift,
        14,
        3,
    ),
    Part(
        "green-contexts",
        "Do kernels of a green context get their share?",
        SHARE,
        f"{SRC}/contexts/context_lifetime.c",
        shares.green_contexts,
        7,
        2,
    ),
    Part(
        "allocators",
        "Does each of eleven allocators stop at the limit?",
        "granted to the limit, then refused",
        f"{SRC}/memory/charges/allocation_charge.c",
        costs.allocators,
        20,
        2,
    ),
    Part(
        "graphs",
        "Do graphs and kernels with memory of pools get their share?",
        SHARE,
        f"{SRC}/time/launch_hooks.c",
        shares.graphs,
        18,
        4,
    ),
    Part(
        "processes",
        "Do two and eight processes of one container share its limit of time?",
        SHARE,
        f"{SRC}/time/time_budget.c",
        shares.processes,
        14,
        3,
    ),
    Part(
        "processes-memory",
        "Do processes that ask at once stay within one limit?",
        "the limit in total",
        f"{SRC}/core/memory_limit.c",
        memory.fill_together,
        8,
        1,
    ),
    Part(
        "runtime",
        "Does a program of the CUDA runtime reach the limit and no more?",
        "at most the limit, and a hooked launch",
        f"{SRC}/intercept/get_proc_address.c",
        users.runtime,
        6,
        1,
    ),
    Part(
        "pytorch",
        "Does PyTorch with cuBLAS reach the limit and no more?",
        "at most the limit",
        f"{SRC}/memory/memory_info.c",
        users.pytorch,
        40,
        1,
    ),
    Part(
        "cupy",
        "Does CuPy with cuBLAS reach the limit and no more?",
        "at most the limit",
        f"{SRC}/memory/memory_info.c",
        users.cupy,
        25,
        1,
    ),
    Part(
        "recovery",
        "How soon is the memory of a killed process available again?",
        "within 2 s",
        f"{SRC}/core/process_slots.c",
        costs.recovery,
        10,
        2,
    ),
    Part(
        "calls",
        "How much longer does each call take?",
        "1 us for a launch, 10 us for others",
        f"{SRC}/intercept/hook_table.c",
        costs.calls,
        20,
        5,
    ),
    Part(
        "mps",
        "Do two containers below MPS get their shares?",
        SHARE,
        f"{SRC}/time/launch_samples.c",
        driver.mps,
        15,
        1,
    ),
    Part(
        "hami-short-kernels",
        "The same with HAMi-core.",
        SHARE,
        "",
        shares.hami_short_kernels,
        28,
        5,
        False,
    ),
    Part(
        "hami-patterns", "The same with HAMi-core.", SHARE, "", shares.hami_patterns, 16, 3, False
    ),
    Part(
        "hami-granules", "The same with HAMi-core.", CHARGED, "", memory.hami_granules, 10, 2, False
    ),
    Part(
        "hami-allocators",
        "The same with HAMi-core.",
        "the limit",
        "",
        costs.hami_allocators,
        20,
        2,
        False,
    ),
    Part("hami-tenants", "The same with HAMi-core.", SHARE, "", shares.hami_tenants, 10, 3, False),
    Part("hami-calls", "The same with HAMi-core.", "", "", costs.hami_calls, 20, 4, False),
)
