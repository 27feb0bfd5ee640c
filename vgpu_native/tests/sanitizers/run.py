"""Run the test programs on the stub with a library that a sanitizer instruments.

`python run.py asan|ubsan|tsan LIBRARY BUILD [NAME…]` runs all programs, or those whose line begins
with a NAME, one after the other. It prints a line for each, and the reports. The exit status is 1
if a sanitizer reported something or a program failed.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

RUN_S: Final = 180.0
RUNTIMES: Final = {"asan": "libasan.so", "ubsan": "libubsan.so", "tsan": "libtsan.so"}
OPTIONS: Final = {
    "asan": ("ASAN_OPTIONS", "detect_leaks=0:handle_segv=1"),
    "ubsan": ("UBSAN_OPTIONS", "print_stacktrace=1"),
    "tsan": ("TSAN_OPTIONS", "die_after_fork=0:report_signal_unsafe=0:second_deadlock_stack=1"),
}

ALLOCATORS: Final = """
    linear managed pitch async async-ptsz async-freed-at-once pool pool-ptsz handle mapped array
    array3 mipmapped
"""
RULES: Final = """
    info absurd unknown late-driver pitch pools current-pool stream-of-other-device capture
    capture-near-limit capture-from-pool graphs graphs-in-turn graph-unread graph-of-two-devices
    address-anew array-without-memory handles many-mappings handle-of-other-device exported contexts
"""
LOADS: Final = """
    loop queue streams threads graph mixed ex cooperative ended-streams ended-contexts fork
"""
ENDS: Final = "return exit signal handler fork _exit quick idle slow"


class Program(NamedTuple):
    """A program with its arguments and settings."""

    words: tuple[str, ...]
    settings: Mapping[str, str] = MappingProxyType({})


_TIME: Final = {"CUDA_DEVICE_SM_LIMIT": "50", "VGPU_STUB_DEVICES": "1"}
_FORK: Final = {"VGPU_STUB_FORK": "1"}

PROGRAMS: Final = (
    *(Program(("memory_limit", name, str(3 << 20))) for name in ALLOCATORS.split()),
    *(Program(("memory_rules", name)) for name in RULES.split()),
    *(Program(("memory_random", str(seed), "5000")) for seed in (1, 2)),
    *(
        Program(("memory_threads", str(seed)), {"CUDA_DEVICE_MEMORY_LIMIT": "200m"})
        for seed in (1, 2)
    ),
    Program(("fork_threads", "20"), _FORK),
    Program(("outlives",)),
    *(
        Program(
            ("time_load", name, "1", "200000", "0.2"),
            {**_TIME, **_FORK, "VGPU_STUB_GRID_NS": "200000"},
        )
        for name in LOADS.split()
    ),
    Program(("time_without_threads",), {**_TIME, "VGPU_STUB_GRID_NS": "2000000"}),
    Program(("process/launch_calls",), _TIME),
    *(
        Program(
            ("process/ends", name),
            {**_TIME, "VGPU_STUB_GRID_NS": "1", "VGPU_STUB_TEARDOWN_NS": "20000000"},
        )
        for name in ENDS.split()
    ),
)

UNSUPPORTED: Final = {
    "asan": ("fork_threads",),
    "tsan": ("fork_threads", "memory_limit managed", "outlives", "time_load fork"),
}
"""Lines of programs that a sanitizer cannot run. A child of a fork keeps the locks of the address
sanitizer's allocator, and may have a thread's number that the thread sanitizer has already. The
thread sanitizer's shadow lies where the stub puts managed memory, and it does not survive
processes that share memory without being threads."""


def runtime(kind: str) -> str:
    """Return the path of a sanitizer's library, of the compiler `CC`."""
    command = [os.environ.get("CC", "gcc"), f"-print-file-name={RUNTIMES[kind]}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def environment(kind: str, library: Path, build: Path, folder: Path) -> dict[str, str]:
    """Return the environment of a program whose reports come into a folder."""
    name, options = OPTIONS[kind]
    return {
        "PATH": os.environ["PATH"],
        "LD_PRELOAD": f"{runtime(kind)}:{library.absolute()}",
        "LD_LIBRARY_PATH": str((build / "stub").absolute()),
        "CUDA_DEVICE_MEMORY_LIMIT": "100m",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(folder / "region"),
        "VGPU_STUB_STATE": str(folder / "machine"),
        "VGPU_STUB_DEVICES": "2",
        name: f"{options}:log_path={folder}/report",
    }


def line_of(program: Program) -> str:
    """Return the program and its arguments as a line."""
    return " ".join(program.words)


def reports_of(kind: str, library: Path, build: Path, program: Program) -> tuple[str, str]:
    """Return the reports of one program, and its failure; empty texts if there are none."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        environ = environment(kind, library, build, folder) | program.settings
        # The kernel's random addresses may be those that a sanitizer needs.
        command = ["setarch", "-R", str(build / "tests" / program.words[0]), *program.words[1:]]
        try:
            done = subprocess.run(
                command, env=environ, capture_output=True, text=True, timeout=RUN_S, check=False
            )
        except subprocess.TimeoutExpired:
            return "", f"no end within {RUN_S:.0f} s"
        reports = "".join(path.read_text() for path in sorted(folder.glob("report*")))
        failure = f"status {done.returncode}: {done.stderr[-2000:]}" if done.returncode else ""
        return reports, failure


def main(kind: str, library: str, build: str, names: Sequence[str]) -> int:
    """Run the programs; return the exit status."""
    chosen = [
        program
        for program in PROGRAMS
        if (not names or line_of(program).startswith(tuple(names)))
        and not line_of(program).startswith(UNSUPPORTED.get(kind, (" ",)))
    ]
    bad = 0
    for program in chosen:
        reports, failure = reports_of(kind, Path(library), Path(build), program)
        bad += bool(reports or failure)
        words = line_of(program)
        sys.stdout.write(f"{kind} {'failed' if reports or failure else 'ok'}: {words}\n")
        sys.stdout.write(reports[:6000] + failure)
        sys.stdout.flush()
    sys.stdout.write(f"{kind}: {len(chosen)} programs, {bad} with reports or failures\n")
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
