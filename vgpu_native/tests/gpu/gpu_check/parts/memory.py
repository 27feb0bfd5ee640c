"""Memory: the bytes that the library counts, beside those that NVML counts, step by step."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

from gpu_check.bench import HAMI, NONE, OURS, Bench
from gpu_check.nvml import Nvml
from gpu_check.outcome import Broken, CuResult, Findings, NotTried

MIB = 2**20
TOLERANCE_MIB = 16.0
"""Memory in use that need not be charged: the rest of a page here and there."""

WASTE_MIB = 64.0
"""Charged memory that need not be in use: what a driver keeps for later."""

HEAPS_MIB = 8192
"""More than a context, its heaps and the stacks of all threads of a card take."""

OUT_OF_MEMORY = 2
NOT_SUPPORTED = (1, 801)
"""CUDA_ERROR_INVALID_VALUE and CUDA_ERROR_NOT_SUPPORTED."""

SETTLE_SECONDS = 0.15
"""NVML follows the driver with a delay."""

SETTLES_MAX = 10


@dataclass(frozen=True)
class Step:
    """A step: MiB that the driver's calls count and have in total, and those of NVML."""

    name: str
    counted: float
    total: float
    used: float
    result: CuResult


@dataclass(frozen=True)
class Walk:
    """The steps of a program, and the other numbers that it printed."""

    steps: tuple[Step, ...]
    values: dict[str, str]
    by_process: bool

    def __getitem__(self, name: str) -> Step:
        """Return the first step of a name. Raises Broken if there is none."""
        for step in self.steps:
            if step.name == name:
                return step
        raise Broken(f"the program made no step {name}")

    def grown(self, before: str, after: str) -> tuple[float, float]:
        """Return the MiB by which the library's count and NVML's have grown between two steps."""
        return self[after].counted - self[before].counted, self[after].used - self[before].used


def walk(bench: Bench, command: list[str], env: dict[str, str]) -> Walk:
    """Run a program step by step, and read NVML at each. Raises Broken, NotTried."""
    nvml = bench.nvml
    if nvml is None:
        raise NotTried("NVML cannot be read, so only the driver's own count is known")
    before = _settled(bench, nvml)
    steps: list[Step] = []
    values: dict[str, str] = {}
    listed = True
    with bench.start(command, env) as running:
        while True:
            try:
                cells = running.line()
            except Broken:
                if running.process.poll() == 0:
                    break
                raise
            if cells[0] != "step":
                values[cells[0]] = cells[1]
                continue
            if not bench.stub:
                time.sleep(SETTLE_SECONDS)
            own = nvml.group(running.pid)
            listed = listed and (own is not None or cells[1] == "start")
            used = own if own is not None else nvml.used() - before
            result = CuResult(int(cells[4]), cells[5], cells[1])
            steps.append(
                Step(cells[1], int(cells[2]) / MIB, int(cells[3]) / MIB, used / MIB, result)
            )
            running.resume()
    return Walk(tuple(steps), values, listed)


def _settled(bench: Bench, nvml: Nvml) -> int:
    """Return the used bytes of the card, once the memory of earlier processes is free."""
    used = nvml.used()
    for _ in range(0 if bench.stub else SETTLES_MAX):
        time.sleep(SETTLE_SECONDS)
        used, before = nvml.used(), used
        if used == before:
            break
    return used


def limited(
    bench: Bench, findings: Findings, program: tuple[object, ...], limit: int, library: str = OURS
) -> Walk:
    """Run a program below a limit in MiB, which its view of the card must show."""
    walked = walk(bench, bench.program(*program), bench.env(library, limit))
    total = max(step.total for step in walked.steps)
    findings.add(f"{' '.join(map(str, program[1:]))}: memory in total", total, "MiB", 1, limit)
    return walked


def _balanced(findings: Findings, walked: Walk, name: str, since: str, after: str) -> None:
    """Expect that the library counts all memory that NVML does, and not much more."""
    counted, used = walked.grown(since, after)
    result = walked[after].result
    if used <= TOLERANCE_MIB and counted <= TOLERANCE_MIB:
        if result.code == OUT_OF_MEMORY:
            findings.expect(name, False, "refused, though the limit leaves memory", result)
            return
        findings.notes.append(f"{name}: the driver took no memory for it ({result.name})")
        return
    findings.add(
        f"{name}: in use and not charged", used - counted, "MiB", -WASTE_MIB, TOLERANCE_MIB, result
    )


def granules(bench: Bench, library: str = OURS) -> Findings:
    """Compare many small allocations and arrays with NVML."""
    findings = bench.begin()
    number = 200 if bench.quick else 1000
    pieces = limited(bench, findings, ("steps", "pieces", number), 8192, library)
    for name in ("pieces of 2 MiB + 512 B", "pieces of 1 MiB + 512 B", "pieces of 512 B"):
        _balanced(findings, pieces, f"{number:,} {name}", "context", name)
        counted, used = pieces.grown("context", name)
        findings.compare(
            f"{number:,} {name}: charged of {used:,.0f} MiB in use",
            "MiB",
            **{NONE: 0.0, library: counted},
        )
    arrays = limited(
        bench, findings, ("steps", "arrays", 32 if bench.quick else 128), 8192, library
    )
    for name in ("3D arrays", "2D arrays"):
        _balanced(findings, arrays, name, "context", name)
    return findings


def process_memory(bench: Bench, library: str = OURS) -> Findings:
    """Compare contexts, modules and streams with the charge, in one process and in two."""
    findings = bench.begin()
    alone = limited(bench, findings, ("steps", "context"), 4096, library)
    context = alone["context"]
    findings.add("a context by NVML", context.used, "MiB")
    findings.add(
        "a context: in use and not charged",
        context.used - context.counted,
        "MiB",
        -WASTE_MIB,
        TOLERANCE_MIB,
    )
    findings.compare(
        "a context: charged of " + f"{context.used:,.0f} MiB in use",
        "MiB",
        **{NONE: 0.0, library: context.counted},
    )
    for name in ("module", "32 streams", "second context"):
        _balanced(findings, alone, name, "context", name)
    _balanced(findings, alone, "after the second context", "context", "second context ended")
    _second_process(bench, findings, context, library)
    return findings


def _second_process(bench: Bench, findings: Findings, first: Step, library: str) -> None:
    env = bench.env(library, 4096)
    with bench.start(bench.program("calls", "hold", 4096), env) as holder:
        holder.line()
        second = walk(bench, bench.program("steps", "context"), env)["context"]
    findings.add("a second process by NVML", second.used, "MiB")
    # It reads the count of the whole container, so the first process is in it.
    uncharged = first.used + second.used - second.counted
    findings.add(
        "two processes: in use and not charged", uncharged, "MiB", -2 * WASTE_MIB, 2 * TOLERANCE_MIB
    )


def heaps(bench: Bench) -> Findings:
    """Raise the limits of a context, and load a module with a large array."""
    findings = bench.begin()
    raised = limited(bench, findings, ("steps", "heaps"), HEAPS_MIB)
    before = "context"
    for name in ("heap of 512 MiB", "printf buffer of 256 MiB", "stacks of 8 KiB"):
        _balanced(findings, raised, name, before, name)
        before = name
    loaded = limited(bench, findings, ("steps", "globals"), HEAPS_MIB)
    _balanced(
        findings,
        loaded,
        "array of 512 MiB in a module",
        "context",
        ".global array of 512 MiB",
    )
    if len(findings.rows) == len(("heaps", "globals")) and not findings.failed:
        raise NotTried("the driver took no memory for heaps and arrays of modules")
    return findings


def pools(bench: Bench) -> Findings:
    """Fill a pool up to the limit, and see what is left of it."""
    findings, limit = bench.begin(), 2048
    filled = limited(bench, findings, ("steps", "pools"), limit)
    full = filled["pool full"]
    findings.expect(
        "the pool's refusal", full.result.code == OUT_OF_MEMORY, full.result.name, full.result
    )
    findings.add(
        "the last 80 MiB: given by the pool",
        float(filled.values["given_mib"]),
        "MiB",
        40,
        80,
        full.result,
    )
    _balanced(findings, filled, "a full pool", "context", "pool full")
    _, kept = filled.grown("all but 80 MiB", "pool trimmed")
    findings.add("kept by a trimmed pool", kept, "MiB", None, TOLERANCE_MIB)
    return findings


def free_async(bench: Bench) -> Findings:
    """Free memory behind a kernel: it is in use until that ends, and counts until then."""
    findings, limit = bench.begin(), 2048
    freed = limited(bench, findings, ("steps", "free-async"), limit)
    again = freed["asked again, linear"]
    since = freed["context"]
    findings.add(
        "in use above the context, when asked again",
        again.used - since.used,
        "MiB",
        None,
        limit + TOLERANCE_MIB,
        again.result,
    )
    _balanced(findings, freed, "freed behind a kernel", "context", "freed behind a kernel")
    later = freed["asked after the kernel"]
    findings.expect(
        "asked after the kernel", later.result.code == 0, later.result.name, later.result
    )
    if later.result.code == 0:
        name = "linear, freed behind a kernel"
        _balanced(findings, freed, name, "context", name)
    return findings


def handles(bench: Bench) -> Findings:
    """Import memory of another process, whose maker then releases it, below a limit of 1 GiB."""
    findings = bench.begin()
    for kind in ("vmm", "ipc"):
        try:
            shared = limited(bench, findings, ("handles", kind), 1024)
        except Broken as error:
            if error.result.code not in NOT_SUPPORTED:
                raise
            findings.notes.append(f"{kind}: {error}")
            continue
        counted, used = shared.grown("context", "released by its maker")
        measure = f"{kind}: in use and not charged, released by its maker and imported"
        findings.add(measure, used - counted, "MiB", -WASTE_MIB, TOLERANCE_MIB)
        counted, _ = shared.grown("context", "released by its importer")
        _, made = shared.grown("context", "made")
        measure = f"{kind}: charged for a second one, when the first is released"
        findings.add(measure, counted, "MiB", made - TOLERANCE_MIB, made + TOLERANCE_MIB)
    return findings


def fill_together(bench: Bench) -> Findings:
    """Let processes of one container ask at once, until each is refused."""
    findings, limit = bench.begin(), 8192
    env = bench.env(OURS, limit)
    count = 2 if bench.quick else 8
    with ExitStack() as stack:
        program = bench.program("steps", "fill")
        running = [stack.enter_context(bench.start(program, env)) for _ in range(count)]
        # Each sees the count of the container, so the largest has all contexts.
        contexts = max(int(each.line()[2]) for each in running) / MIB
        for each in running:
            each.resume()
        given = sum(float(each.line()[1]) for each in running)
        results = [each.line() for each in running]
    refused = CuResult(int(results[0][4]), results[0][5], "cuMemAlloc")
    findings.add(
        f"{count} processes with {limit:,} MiB: given",
        given,
        "MiB",
        limit - contexts - WASTE_MIB * count,
        limit - contexts + TOLERANCE_MIB,
        refused,
    )
    findings.expect("each refusal", all(row[4] == "2" for row in results), refused.name, refused)
    return findings


def hami_granules(bench: Bench) -> Findings:
    """Compare many small allocations with NVML, with HAMi-core."""
    return granules(bench, HAMI)
