"""Assertions of the C code: each level aborts on planted defects; what ships has none."""

import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from native.harness.builds import BUILD, BUILDS, CHECKED, NATIVE
from native.harness.core_programs import UUID
from native.harness.memory_user import environment

from vgpu_native.shared.limits_page import ContainerLimits, DeviceLimits, write

CHEAP, EXPENSIVE = 1, 2
FAILED = re.compile(r"gpuledger: assertion failed \(\d+\): (.*), in (\w+) at (\S+):\d+\n")
TIMEOUT_S = 60.0

Make = Callable[..., None]


@dataclass(frozen=True)
class CoreDefect:
    """A defect, the words that `ask` runs into it with, and the assertion that fails."""

    mutant: str
    condition: str
    words: tuple[object, ...] = ("reserve", 1 << 20)
    level: int = CHEAP
    before: tuple[object, ...] = ()
    """The words of a process that ends before."""
    page: bool = False


CORE_DEFECTS = [
    CoreDefect("high_not_raised", "vgpu_slots_high(region) > i"),
    CoreDefect("slot_not_cleared", "is_clear(region, i)", level=EXPENSIVE, before=("charge", 1)),
    CoreDefect("slot_unlisted", "is_announced(slot)"),
    CoreDefect("released_twice", "vgpu_region_unusable()", ("reserve", 2, "release", 2)),
    CoreDefect("sum_without_itself", "all >= request->bytes || vgpu_region_unusable()"),
    CoreDefect(
        "charged_above_high",
        "is_clear_above_high(request->entry)",
        ("charge", 1, "reserve", 1),
        EXPENSIVE,
    ),
    CoreDefect("uuids_share_a_place", "is_claimed(region, entry)", ("device", 1)),
    CoreDefect("registered_unlocked", "vgpu_rank_held(VGPU_RANK_DEVICES)"),
    CoreDefect("kept_after_fork", "is_fresh()", ("fork", "ready")),
    CoreDefect("share_unheld", "vgpu_shared_bytes(entry, 1) >= bytes", ("share", 1 << 20)),
    CoreDefect("join_not_counted", "held[number]", ("share", 1 << 20, "leave", 0)),
    CoreDefect(
        "holder_not_cleared", "is_clear(region, i)", level=EXPENSIVE, before=("share", 1 << 20)
    ),
    CoreDefect("source_beyond_page", "is_of_page(source)", page=True),
]


@dataclass(frozen=True)
class LibraryDefect:
    """A defect, a program of tests/programs that runs into it, and the assertion that fails."""

    mutant: str
    condition: str
    program: str
    arguments: tuple[str, ...]
    level: int = CHEAP
    settings: dict[str, str] = field(default_factory=dict)


TIME = {"CUDA_DEVICE_SM_LIMIT": "50", "VGPU_STUB_GRID_NS": "50000"}
LOOP = ("loop", "0.2", "50000", "0.1")
RANDOM = ("1", "3000")
BLOCKS = {"VGPU_STUB_ALLOC_LARGE_STEP": "2m", "VGPU_STUB_ALLOC_BLOCK": "2m"}
GRANULES = ("memory_rules", ("granules",))
POOLS = ("memory_rules", ("pools",))

LIBRARY_DEFECTS = [
    LibraryDefect("hole_left_behind", "is_sound(shard)", "memory_random", RANDOM, EXPENSIVE),
    LibraryDefect("items_not_counted", "shard->used > 0", "memory_random", RANDOM),
    LibraryDefect("context_cut_off", "is_in(note, charge->context)", "memory_random", RANDOM),
    LibraryDefect("pool_lock_kept", "vgpu_holds_no_lock()", *POOLS),
    LibraryDefect("pool_read_unlocked", "vgpu_rank_held(VGPU_RANK_POOL)", *POOLS),
    LibraryDefect("locks_out_of_order", "vgpu_ranks_held >> rank == 0", *POOLS),
    LibraryDefect("growth_not_held", "pool->held >= growth->held", *POOLS),
    LibraryDefect(
        "block_not_counted", "device->count || !device->live", *GRANULES, settings=BLOCKS
    ),
    LibraryDefect("left_twice", "vgpu_inside", "memory_rules", ("info",)),
    LibraryDefect(
        "addresses_unsorted", "is_sorted()", "without_memory", ("procaddress",), EXPENSIVE
    ),
    LibraryDefect("queue_ended_twice", "is_balanced(work)", "time_load", LOOP, settings=TIME),
    LibraryDefect("sample_kept_twice", "is_in(sample, TAKEN)", "time_load", LOOP, settings=TIME),
    LibraryDefect("charged_backwards", "after >= used_until", "time_load", LOOP, settings=TIME),
]


def failures_of(command: list[object], environ: dict[str, str]) -> list[str]:
    """Return the conditions of the assertions that failed while a command ran."""
    done = subprocess.run(
        list(map(str, command)),
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    conditions = [condition for condition, _function, _file in FAILED.findall(done.stderr)]
    assert len(conditions) == done.stderr.count("assertion failed"), done.stderr
    assert conditions or done.returncode != -signal.SIGABRT, done.stderr
    return conditions


def ask(program: Path, defect: CoreDefect, directory: Path) -> list[str]:
    """Return the assertions that fail while a program asks the ledger, with a region of its own."""
    environ = {
        "PATH": os.environ["PATH"],
        "CUDA_DEVICE_MEMORY_LIMIT": "1000m",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(directory / f"region-{program.parts[-4:-2]}"),
    }
    if defect.page:
        write(directory / "limits", ContainerLimits((DeviceLimits(UUID.format(0), 1 << 30),)))
        environ["GPULEDGER_LIMITS_FILE"] = str(directory / "limits")
    if defect.before:
        assert failures_of([program, *defect.before], environ) == []
    return failures_of([program, *defect.words], environ)


@pytest.mark.parametrize("defect", CORE_DEFECTS, ids=lambda defect: defect.mutant)
def test_a_defect_in_core_aborts_from_the_level_of_its_assertion_on(
    make: Make, tmp_path: Path, defect: CoreDefect
) -> None:
    for level in range(defect.level - 1, EXPENSIVE + 1):
        program = BUILDS[level] / "core" / defect.mutant / "ask"
        make(str(program), checks=level)
        failed = ask(program, defect, tmp_path)
        assert len(failed) == (level >= defect.level), failed
        assert all(defect.condition in condition for condition in failed)


def test_a_process_without_a_slot_aborts_when_it_may_reserve_memory(
    make: Make, tmp_path: Path
) -> None:
    program = CHECKED / "core" / "memory_without_slot" / "full"
    make(str(program), checks=EXPENSIVE)
    environ = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "region")}
    assert set(failures_of([program], environ)) == {"state == VGPU_OFF || has_slot_or_is_denied()"}


@pytest.mark.parametrize("defect", LIBRARY_DEFECTS, ids=lambda defect: defect.mutant)
def test_a_defect_in_the_library_aborts_a_program_that_runs_into_it(
    make: Make, program: Callable[[str], Path], tmp_path: Path, defect: LibraryDefect
) -> None:
    library = BUILDS[defect.level] / "time" / defect.mutant / "libvgpu.so"
    make(str(library), checks=defect.level)
    settings = {"LD_PRELOAD": str(library), **defect.settings}
    environ = environment(CHECKED, tmp_path, "100m", **settings)
    failed = failures_of([program(defect.program), *defect.arguments], environ)
    assert len(failed) == 1
    assert defect.condition in failed[0]


def test_an_expensive_assertion_is_not_evaluated_at_the_cheap_level(
    make: Make, program: Callable[[str], Path], tmp_path: Path
) -> None:
    library = BUILDS[CHEAP] / "time" / "hole_left_behind" / "libvgpu.so"
    make(str(library), checks=CHEAP)
    environ = environment(CHECKED, tmp_path, "100m", LD_PRELOAD=str(library))
    assert failures_of([program("memory_random"), *RANDOM], environ) == []


def listed(*command: str | Path) -> str:
    """Return the output of a tool of binutils."""
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def exports_of(path: Path) -> list[str]:
    """Return the names that a library exports."""
    return [line.split()[-1] for line in listed("nm", "-D", "--defined-only", path).splitlines()]


def test_the_shipped_library_has_no_assertion_and_the_same_exports(
    library: Path, native: Path
) -> None:
    checked = native / "libvgpu.so"
    assert b"assertion failed" not in library.read_bytes()
    assert b"assertion failed" in checked.read_bytes()
    assert not re.search(r"vgpu_(assertion_failed|ranks_held)", listed("nm", library))
    assert exports_of(library) == exports_of(checked) != []


EMPTY = """#pragma once
#include <stdbool.h>
#define VGPU_CHECKS 0
#define VGPU_ASSERT(condition) ((void)0)
#define VGPU_ASSERT_EXPENSIVE(condition) ((void)0)
"""


def text_of(source: Path, includes: list[Path], output: Path) -> bytes:
    """Return the machine code of a source, compiled as for the library."""
    flags = ["-D_GNU_SOURCE", "-DVGPU_CHECKS=0", "-O2", "-std=gnu11", "-fPIC", "-pthread", "-w"]
    hidden = ["-fvisibility=hidden", "-fno-semantic-interposition"]
    headers = ["-isystem", BUILD / "headers/nvidia/cu13/include", "-I", NATIVE / "include"]
    quoted = [word for path in includes for word in ("-iquote", path)]
    made = ["-I", BUILD / "include", "-include", NATIVE / "include/glibc.h"]
    command = ["cc", *flags, *hidden, *quoted, *headers, *made, "-c", source, "-o", output]
    subprocess.run(list(map(str, command)), check=True, timeout=60)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", output], check=True, timeout=60)
    return output.read_bytes()


@pytest.mark.usefixtures("library")
def test_assertions_add_no_instruction_to_the_shipped_library(tmp_path: Path) -> None:
    sources = NATIVE / "src"
    empty = tmp_path / "empty"
    (empty / "util").mkdir(parents=True)
    (empty / "util" / "assert.h").write_text(EMPTY)
    asserting = [path for path in sources.rglob("*.c") if "VGPU_ASSERT" in path.read_text()]
    assert len(asserting) >= 12
    for source in asserting:
        shipped = text_of(source, [sources], tmp_path / "shipped.o")
        assert text_of(source, [empty, sources], tmp_path / "empty.o") == shipped != b"", source
