"""The cost of calls, allocators up to the limit, and memory of killed processes."""

from __future__ import annotations

import statistics

from gpu_check.bench import HAMI, NONE, OURS, Bench
from gpu_check.outcome import Broken, CuResult, Findings

LIMIT_MIB = 4096
CALLS_MIB = 8192
"""Enough for ten thousand small allocations, which a driver rounds up."""

LAUNCH_NS, CALL_NS = 1_000.0, 10_000.0
"""The most that a call may cost more; the goals are tighter, see docs/performance.md."""

RECOVERY_US = 2_000_000.0


def calls(bench: Bench, library: str = OURS) -> Findings:
    """Compare the cost of each call with and without limits."""
    findings = bench.begin()
    native = bench.run(bench.program("calls"), bench.env(NONE)).values
    memory = bench.run(bench.program("calls"), bench.env(library, CALLS_MIB)).values
    both = (
        memory
        if bench.quick
        else bench.run(bench.program("calls"), bench.env(library, CALLS_MIB, 99)).values
    )
    for name, cost in native.items():
        slower = memory[name] - cost
        timed = both[name] - cost
        findings.compare(f"{name}", "ns", **{NONE: cost, library: memory[name]})
        if name in ("init", "first alloc+free"):
            findings.add(f"{name}: added", slower / 1e6, "ms")
            continue
        findings.add(
            f"{name}: added", slower, "ns", None, LAUNCH_NS if "launch" in name else CALL_NS
        )
        if "launch" in name and both is not memory:
            findings.add(f"{name}: added with a limit of time", timed, "ns", None, LAUNCH_NS)
    return findings


def allocators(bench: Bench, library: str = OURS) -> Findings:
    """Take every allocator to the limit, and one granule above it."""
    findings = bench.begin()
    command = bench.program("limits", bench.bundle / "bin" / "view")
    limit = 1024 if bench.quick else LIMIT_MIB
    with bench.start(command, bench.env(library, limit)) as running:
        ran = running.end(status=None)
    if not ran.rows:
        raise Broken(f"limits ended with {ran.status}: {ran.stderr[-300:]}", ran.result)
    for name, given, besides, verdict in ran.rows:
        refused = (
            CuResult(2, "CUDA_ERROR_OUT_OF_MEMORY", name)
            if verdict == "ok"
            else CuResult(0, "CUDA_SUCCESS", name)
        )
        findings.expect(f"{name}: given, then refused", verdict == "ok", verdict, refused)
        findings.add(f"{name}: given", float(given), "MiB", 1, limit, refused)
        findings.compare(f"{name}: given of {limit:,} MiB", "MiB", **{library: float(given)})
        findings.add(f"{name}: counted by NVML besides", float(besides), "MiB")
    if ran.status:
        findings.expect("the allocator after these", False, ran.stderr[-200:], ran.result)
    return findings


def recovery(bench: Bench) -> Findings:
    """Measure the time until memory of a killed process is available again."""
    findings = bench.begin()
    rounds = 3 if bench.quick else 7
    ran = bench.run(bench.program("recovery", rounds), bench.env(OURS, LIMIT_MIB))
    took = [float(row[0]) for row in ran.rows]
    findings.add(
        "from SIGKILL to the memory's next owner, worst", max(took), "us", None, RECOVERY_US
    )
    findings.add("from SIGKILL to the memory's next owner, median", statistics.median(took), "us")
    return findings


def hami_calls(bench: Bench) -> Findings:
    """Compare the cost of each call with HAMi-core."""
    return calls(bench, HAMI)


def hami_allocators(bench: Bench) -> Findings:
    """Take every allocator to the limit with HAMi-core."""
    return allocators(bench, HAMI)
