"""dlsym finds hooks for the driver's functions, and all else as it did without the library."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

VGPU, CUDA, OTHER = "libvgpu.so", "libcuda.so.1", "libother.so"
Probe = Callable[..., list[str]]


@pytest.fixture(scope="module")
def built(make: Callable[..., None], abi: Path) -> Path:
    """Return the directory with the probe and the libraries beside it."""
    make("dlsym")
    return abi.parent / "dlsym"


@pytest.fixture(scope="module")
def driver(abi: Path) -> Path:
    """Return a driver."""
    return abi / CUDA


@pytest.fixture
def probe(built: Path, library: Path, driver: Path) -> Probe:
    """Return a function that runs the steps of a probe and returns its output by lines."""

    def run(
        *steps: str, program: str = "probe", preload: str | None = None, **settings: str
    ) -> list[str]:
        before = str(library) if preload is None else preload
        environment = {**os.environ, "LD_LIBRARY_PATH": str(driver.parent), **settings}
        if before:
            environment["LD_PRELOAD"] = before
        command: list[str | Path] = [built / program, *steps]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, (done.returncode, done.stderr)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize("program", ["probe", "probe-2.2.5", "probe-2.34"])
def test_the_drivers_functions_are_hooked_for_programs_of_every_glibc(
    probe: Probe, built: Path, program: str
) -> None:
    if program == "probe-2.34":
        skip_without_2_34(built / program)
    assert probe("open:libcuda.so.1", "has:cuMemAlloc_v2", program=program) == [VGPU]


@pytest.mark.parametrize("name", ["cuGetProcAddress", "cuGetProcAddress_v2"])
def test_the_function_that_the_runtime_looks_up_is_hooked(probe: Probe, name: str) -> None:
    assert probe("open:libcuda.so.1", f"has:{name}") == [VGPU]


def test_the_driver_is_known_by_any_path_to_it(probe: Probe, driver: Path, tmp_path: Path) -> None:
    link = tmp_path / "mine.so"
    link.symlink_to(driver)
    for path in (driver, link):
        assert probe(f"open:{path}", "has:cuMemAlloc_v2", "has:cuCtxGetId") == [VGPU, path.name]


def test_next_and_default_lookups_find_the_hooks_when_a_driver_is_loaded(
    probe: Probe,
) -> None:
    steps = ("default:cuMemAlloc_v2", "next:cuMemAlloc_v2", "self:cuMemAlloc_v2")
    assert probe("open:libcuda.so.1", *steps) == [VGPU] * 3
    assert probe("global:libcuda.so.1", *steps) == [VGPU] * 3


def test_no_driver_function_is_found_when_no_driver_is_loaded(probe: Probe) -> None:
    assert probe("default:cuMemAlloc_v2", "self:cuMemAlloc_v2") == ["nowhere"] * 2
    answers = probe("open:libm.so.6", "has:cuMemAlloc_v2", "error", "error")
    assert answers[0] == "nowhere"
    assert "libm.so.6: undefined symbol: cuMemAlloc_v2" in answers[1]
    assert answers[2] == "none"


@pytest.mark.parametrize("name", ["cuNothing", "cuMemAlloc_v9", "nothing"])
def test_a_missing_symbol_is_reported_as_without_the_library(probe: Probe, name: str) -> None:
    steps = ("open:libcuda.so.1", f"has:{name}", "error", "error", "has:cuMemAlloc_v2", "error")
    answers = probe(*steps)
    assert answers[0] == "nowhere"
    assert answers[1].endswith(f"libcuda.so.1: undefined symbol: {name}")
    assert answers[2:] == ["none", VGPU, "none"]
    assert answers[:3] == probe(*steps, preload="")[:3]


@pytest.mark.parametrize(
    "name",
    [
        "cuMemAlloc_v2",
        "cudaMalloc",
        "cublasCreate_v2",
        "cudnnCreate",
        "curl_easy_init",
        "cu",
        "c",
        "n",
        "nvml",
        "nvmlDeviceGetMemoryInfo",
    ],
)
def test_functions_of_other_libraries_are_not_hooked(probe: Probe, built: Path, name: str) -> None:
    alike = f"open:{built}/libalike.so"
    assert probe(alike, f"has:{name}") == ["libalike.so"]
    assert probe("open:libcuda.so.1", alike, f"has:{name}") == ["libalike.so"]


def test_the_next_function_is_found_at_every_lookup(probe: Probe) -> None:
    assert probe(*["next:open"] * 3) == ["libc.so.6"] * 3


@pytest.mark.parametrize("first", [True, False])
def test_a_preloaded_library_finds_the_functions_behind_it_in_both_orders(
    probe: Probe, built: Path, library: Path, first: bool
) -> None:
    order = [str(library), str(built / OTHER)]
    preload = ":".join(order if first else reversed(order))
    answers = probe("ask:other_malloc", "ask:ompt_start_tool", preload=preload)
    assert answers == ["libc.so.6", "nowhere"]


@pytest.mark.parametrize("first", [True, False])
def test_an_interposer_of_the_driver_reaches_the_hook_in_both_orders(
    probe: Probe, built: Path, library: Path, first: bool
) -> None:
    order = [str(library), str(built / OTHER)]
    preload = ":".join(order if first else reversed(order))
    steps = ("open:libcuda.so.1", "default:cuMemAlloc_v2", "ask:other_next", "has:cuMemAlloc_v2")
    outer = VGPU if first else OTHER
    assert probe(*steps, preload=preload) == [outer, VGPU, VGPU]


def skip_without_2_34(path: Path) -> None:
    if b"GLIBC_2.34" not in path.read_bytes():
        pytest.skip("this C library has no dlsym of 2.34")


@pytest.mark.parametrize("program", ["probe", "probe-2.2.5"])
@pytest.mark.parametrize("finds_next", ["", "-moved", "-handle"])
@pytest.mark.parametrize("first", [True, False])
def test_an_interposer_of_dlsym_itself_reaches_the_hooks_in_both_orders(
    probe: Probe, built: Path, library: Path, first: bool, finds_next: str, program: str
) -> None:
    """It finds the next dlsym by its first version, by that of glibc 2.34, or in the C library."""
    skip_without_2_34(built / "probe-2.34")
    order = [str(library), str(built / f"libinterposer{finds_next}.so")]
    preload = ":".join(order if first else reversed(order))
    steps = ("open:libcuda.so.1", "has:cuMemAlloc_v2", "has:cuGetProcAddress", "has:cuCtxGetId")
    assert probe(*steps, program=program, preload=preload) == [VGPU, VGPU, CUDA]
    assert probe("ask:next_dlsym", "next:open", preload=preload) == [VGPU, "libc.so.6"]


def test_dlsym_ends_when_the_library_behind_has_the_version(
    probe: Probe, built: Path, library: Path
) -> None:
    """Each would call the other for ever if the other found this library's dlsym as the next."""
    preload = f"{library}:{built / 'libinterposer-versioned.so'}"
    steps = ("next:open", "open:libcuda.so.1", "has:cuMemAlloc_v2", "has:cuCtxGetId")
    assert probe(*steps, preload=preload)[1:] == [VGPU, CUDA]
    assert probe("ask:next_dlsym", preload=preload) == ["libc.so.6"]


def test_the_next_dlsym_is_that_of_a_library_between_when_there_is_one(
    probe: Probe, built: Path, library: Path
) -> None:
    between = "libinterposer-jumps.so"
    preload = ":".join(map(str, (built / OTHER, built / between, library)))
    assert probe("ask:other_next_dlsym", preload=preload) == [between]


@pytest.mark.parametrize("name", ["dlsym", "dlvsym"])
def test_dlsym_that_is_looked_up_finds_the_hooks(probe: Probe, built: Path, name: str) -> None:
    skip_without_2_34(built / "probe-2.34")
    versions = [f"{way}:{name}@GLIBC_2.34" for way in ("version", "next-version")]
    ways = [f"{way}:{name}" for way in ("has", "default", "next", "self")]
    assert probe("open:libc.so.6", *versions, *ways) == [VGPU] * 6
    assert probe("open:libc.so.6", f"version:{name}@GLIBC_0", "error")[0] == "nowhere"


def test_a_function_that_is_looked_up_with_its_version_is_hooked(probe: Probe, built: Path) -> None:
    hooked = [f"{way}:cuMemAlloc_v2@CUDA_1" for way in ("version", "next-version")]
    others = ("cuCtxGetId@CUDA_1", "cuMemAlloc_v2@CUDA_2", "cuNothing@CUDA_1")
    steps = ("open:libcuda.so.1", *hooked, *(f"version:{name}" for name in others))
    versioned = str(built / "versioned")
    expected = [VGPU, VGPU, CUDA, "nowhere", "nowhere"]
    assert probe(*steps, LD_LIBRARY_PATH=versioned) == expected


def test_the_hooks_are_found_when_an_auditor_sees_all_bindings(probe: Probe, built: Path) -> None:
    steps = ("open:libcuda.so.1", "has:cuMemAlloc_v2", "default:cuMemAlloc_v2", "next:open")
    auditor = str(built / "libauditor.so")
    assert probe(*steps, LD_AUDIT=auditor) == [VGPU, VGPU, "libc.so.6"]


def test_children_find_the_hooks(probe: Probe) -> None:
    steps = ("open:libcuda.so.1", "has:cuMemAlloc_v2", "fork", "has:cuMemFree_v2", "vfork")
    parent = [VGPU, VGPU, "status 0", "status 0"]
    assert sorted(probe(*steps)) == sorted([*parent, "status 0"])


def test_a_new_namespace_is_a_bypass_that_is_documented(probe: Probe, driver: Path) -> None:
    """Preloaded libraries are not in it; what it uses is seen by the agent only."""
    assert probe(f"apart:{driver}", "has:cuMemAlloc_v2") == [CUDA]


def test_a_static_program_is_not_touched(built: Path, library: Path) -> None:
    done = subprocess.run(
        [built / "probe-static", "error"],
        env={"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "none\n", "")


def test_a_setuid_program_does_not_load_the_library_from_its_environment(
    built: Path, library: Path, tmp_path: Path
) -> None:
    """The loader ignores paths there; /etc/ld.so.preload reaches such programs, too."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a program of another user")
    program = tmp_path / "probe"
    shutil.copy(built / "probe", program)
    os.chown(program, 65534, -1)
    program.chmod(stat.S_ISUID | 0o755)
    command: list[str | Path] = [program, "default:cuMemAlloc_v2", "next:dlsym"]
    done = subprocess.run(
        command,
        env={"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert VGPU not in done.stdout


@pytest.mark.parametrize("sanitizer", ["asan", "tsan", "ubsan"])
def test_a_sanitizer_starts_that_looks_symbols_up_before_it_is_ready(
    probe: Probe, library: Path, sanitizer: str
) -> None:
    command = ["gcc", f"-print-file-name=lib{sanitizer}.so"]
    runtime = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip(f"there is no {sanitizer}")
    preload = f"{runtime}:{library}"
    where = {"ASAN_OPTIONS": "detect_leaks=0"}
    assert probe("open:libcuda.so.1", "has:cuMemAlloc_v2", preload=preload, **where) == [VGPU]


MUSL = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) { return printf("%d %d\\n", !!dlsym(NULL, "puts"), !!dlsym(NULL, "cuInit")) != 4; }
"""


def test_a_program_of_musl_runs_as_without_the_library(library: Path, tmp_path: Path) -> None:
    if shutil.which("musl-gcc") is None:
        pytest.skip("no C library but glibc: apt install musl-tools")
    (tmp_path / "musl.c").write_text(MUSL)
    made: list[str | Path] = ["musl-gcc", "-w", tmp_path / "musl.c", "-o", tmp_path / "musl"]
    subprocess.run(made, timeout=60, check=True)
    done = subprocess.run(
        [tmp_path / "musl"],
        env={"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 0\n", "")


PYTHON = """
import ctypes, sys
lib = ctypes.CDLL("libcuda.so.1")
where = lambda f: ctypes.cast(f, ctypes.c_void_p).value
maps = [line.split() for line in open("/proc/self/maps")]
def owner(address):
    for line in maps:
        low, high = (int(one, 16) for one in line[0].split("-"))
        if low <= address < high:
            return line[-1].rsplit("/", 1)[-1]
print(owner(where(lib.cuMemAlloc_v2)), owner(where(lib.cuCtxGetId)), hasattr(lib, "cuNothing"))
"""


def test_python_finds_the_hooks_by_ctypes(library: Path, driver: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver.parent), "LD_PRELOAD": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", PYTHON],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == [VGPU, CUDA, "False"]


def test_python_without_a_driver_finds_none(library: Path) -> None:
    code = "import ctypes; print(hasattr(ctypes.CDLL(None), 'cuMemAlloc_v2'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["False"]
