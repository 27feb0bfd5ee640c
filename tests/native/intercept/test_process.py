"""A process that loads the library is the same process.

Nothing happens before the first call of the driver, and afterwards only what limits need.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

OPENED = re.compile(r'open(?:at)?\((?:AT_FDCWD, )?"([^"]+)"[^)]*\) = \d')
FIRST = r"GLIBC_2\.(2\.5|17)"  # of the C libraries of x86-64 and aarch64
MOVED = r"GLIBC_2\.34"
ALLOWED = re.compile(rf"(cu|nvml)[A-Z]\w*|dlv?sym(@({FIRST}|{MOVED}))?|{FIRST}|{MOVED}")
NEWEST = (2, 17)
MUSL = {"__cxa_atexit", "__errno_location", "__tls_get_addr"}
"""The names of musl that begin like those of glibc alone."""


def traced(library: Path | None, *command: str) -> str:
    """Return the system calls of a command, run with the library preloaded if it is given."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")
    preload = ["-E", f"LD_PRELOAD={library}"] if library else []
    done = subprocess.run(
        ["strace", "-f", *preload, *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "PTRACE_TRACEME" in done.stderr:
        pytest.skip("this machine does not allow tracing")
    assert done.returncode == 0, done.stderr
    return done.stderr


def read(command: str, *arguments: str | Path) -> str:
    """Return the output of a tool of binutils."""
    done = subprocess.run(
        [command, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_only_hooks_and_dlsym_are_exported(library: Path) -> None:
    names = [line.split()[-1] for line in read("nm", "-D", "--defined-only", library).splitlines()]
    assert {"dlsym", "dlsym@GLIBC_2.34", "dlvsym", "dlvsym@GLIBC_2.34"} <= set(names)
    assert "cuMemAlloc_v2" in names
    assert [name for name in names if not ALLOWED.fullmatch(name)] == []


def test_no_symbol_needs_a_c_library_newer_than_2_17(library: Path) -> None:
    """Its dlsym and dlvsym have the version 2.34 beside the first one; it needs neither."""
    sections = read("readelf", "--version-info", "--wide", library)
    needed = re.findall(r"Name: GLIBC_([\d.]+)", sections.partition("Version needs section")[2])
    assert needed
    newer = {version for version in needed if tuple(map(int, version.split("."))) > NEWEST}
    assert newer == set()


def test_nothing_but_the_c_library_is_needed(library: Path) -> None:
    """Before 2.34 the C library was three libraries. No libcuda: there may be none."""
    needed = re.findall(r"NEEDED.*\[(.+)\]", read("readelf", "--dynamic", library))
    assert sorted(needed) == ["libc.so.6", "libdl.so.2", "libpthread.so.0"]


def test_no_symbol_is_needed_that_musl_lacks(library: Path) -> None:
    """With LD_PRELOAD an image of musl loads it into programs that never use the driver."""
    lines = read("nm", "-D", "--undefined-only", library).splitlines()
    strong = {line.split()[-1].partition("@")[0] for line in lines if line.split()[0] == "U"}
    assert {name for name in strong if name.startswith(("_", "dlv"))} <= MUSL


def test_no_page_of_code_is_written_and_the_stack_is_not_executable(library: Path) -> None:
    assert "TEXTREL" not in read("readelf", "--dynamic", library)
    stack = re.search(r"GNU_STACK.*", read("readelf", "--segments", "--wide", library))
    assert stack
    assert "RWE" not in stack[0]


def test_dlsym_can_be_unwound(library: Path) -> None:
    """Debuggers, profilers and exceptions pass through it."""
    [address] = re.findall(r"(\w+) T dlsym\n", read("nm", "-D", "--defined-only", library))
    frames = read("readelf", "--debug-dump=frames", library)
    assert re.search(rf"FDE .*pc={address}\.\.", frames)


def test_a_program_without_cuda_opens_nothing_more_and_starts_no_thread(library: Path) -> None:
    bare, loaded = (traced(preloaded, "/bin/true") for preloaded in (None, library))
    more = set(OPENED.findall(loaded)) - set(OPENED.findall(bare))
    assert str(library) in more
    assert {Path(path).name for path in more} <= {library.name, "libdl.so.2", "libpthread.so.0"}
    assert not re.search(r"\b(clone3?|v?fork|socket|rt_sigaction|umask|memfd_create)\(", loaded)


def test_dlsym_of_other_names_opens_nothing(library: Path, make: Callable[..., None]) -> None:
    make("dlsym")
    probe = str(library.parent / "dlsym" / "probe")
    steps = ["next:open", "default:cudaMalloc", "default:curl_easy_init", "default:malloc"]
    bare, loaded = (traced(preloaded, probe, *steps) for preloaded in (None, library))
    more = {Path(path).name for path in set(OPENED.findall(loaded)) - set(OPENED.findall(bare))}
    assert more <= {library.name, "libdl.so.2", "libpthread.so.0"}


@pytest.fixture
def limited(library: Path, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process under a limit."""
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "CUDA_DEVICE_MEMORY_LIMIT": "1g",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "region"),
    }


def test_a_process_is_unchanged_after_it_used_the_driver(
    program: Callable[[str], Path], limited: dict[str, str]
) -> None:
    """Its umask, signals, locale, files, directory and errno; and it exits as it wants."""
    command = [program("side_effects")]
    done = subprocess.run(
        command, env=limited, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (42, "", "")


def test_processes_that_never_use_the_driver_leave_no_region(
    limited: dict[str, str], tmp_path: Path
) -> None:
    subprocess.run(["/bin/true"], env=limited, timeout=30, check=True)
    assert list(tmp_path.iterdir()) == []


OFF: tuple[dict[str, str], ...] = (
    {},
    {"CUDA_DISABLE_CONTROL": "true"},
    {"GPU_CORE_UTILIZATION_POLICY": "disable"},
    {"CoreLimitSwitch": "false"},
)
"""The ways to have no limit of time."""


@pytest.mark.parametrize("settings", OFF, ids=lambda settings: "".join(settings) or "unset")
def test_a_launch_asks_the_driver_nothing_when_nothing_limits_it(
    program: Callable[[str], Path], limited: dict[str, str], settings: dict[str, str]
) -> None:
    share = {"CUDA_DEVICE_SM_LIMIT": "30"} if settings else {}
    asked = subprocess.run(
        [program("process/launch_calls")],
        env=limited | share | settings,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert asked.stdout == "0\n"


WAYS = ("return", "exit", "signal", "handler", "fork", "_exit", "quick", "idle", "slow")
"""The ways in which a process ends; see tests/programs/process/ends.c. `slow` returns from main
while calls of the driver take half a millisecond."""

ENDING_S = 10.0


@pytest.mark.parametrize("way", WAYS)
def test_no_thread_calls_the_driver_after_its_end(
    program: Callable[[str], Path], limited: dict[str, str], way: str
) -> None:
    """The stub's exit handler takes 20 ms, and a call from then on aborts the process."""
    settings = {"CUDA_DEVICE_SM_LIMIT": "50", "VGPU_STUB_GRID_NS": "1"}
    delay = {"VGPU_STUB_DELAY_NS": "500000"} if way == "slow" else {}
    teardown = {"VGPU_STUB_TEARDOWN_NS": "20000000", **delay}
    for _ in range(8 if way == "signal" else 2):
        done = subprocess.run(
            [program("process/ends"), way],
            env=limited | settings | teardown,
            capture_output=True,
            text=True,
            timeout=ENDING_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
