"""The programs of a bundle, and their start with and without a library, each with a deadline."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from gpu_check.nvml import Nvml
from gpu_check.outcome import SUCCESS, Broken, CuResult, Findings, NotTried

NONE, OURS, HAMI = "none", "ours", "hami"
ABSENT = 77
PROGRAM_SECONDS = 90.0
"""The longest run of one program."""

STUB_CONTEXT = 256 * 2**20
STUB_MODULE = 2 * 2**20
"""Bytes of a context and of a module on the stub: it takes none by itself."""

STUB_ROWS = 128
"""Rows of a block of arrays on the stub: it pads none by itself, and cards do."""

_PR_SET_PDEATHSIG = 1
_RESULT = re.compile(r"^(.*): (CUDA_\w+|cuda\w+|unknown) \((-?\d+)\)$", re.MULTILINE)
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Ran:
    """A program that has ended: its status, cells of each line, and standard error."""

    status: int
    rows: list[list[str]]
    stderr: str

    @property
    def values(self) -> dict[str, float]:
        """Return the numbers by name."""
        return {row[0]: float(row[1]) for row in self.rows if len(row) > 1 and _is_number(row[1])}

    @property
    def texts(self) -> dict[str, str]:
        """Return the second cells by the first."""
        return {row[0]: row[1] for row in self.rows if len(row) > 1}

    @property
    def result(self) -> CuResult:
        """Return the driver's result with which the program ended."""
        found_all = _RESULT.findall(self.stderr)
        return (
            CuResult(int(found_all[-1][2]), found_all[-1][1], found_all[-1][0])
            if found_all
            else SUCCESS
        )


@dataclass
class Bench:
    """A bundle on this machine. `turns` are the steps of the kernel `work` per microsecond."""

    bundle: Path
    folder: Path
    stub: bool
    quick: bool
    library: Path
    hami: Path | None = None
    given: tuple[Path, ...] = ()
    nvml: Nvml | None = None
    deadline: float = 0.0
    turns: float = 0.0
    card: dict[str, str] = field(default_factory=dict)
    regions: int = 0
    findings: Findings = field(default_factory=Findings)

    def begin(self) -> Findings:
        """Return the findings of a new part, which stay if the part is cut short."""
        self.findings = Findings()
        return self.findings

    def program(self, name: str, *arguments: object) -> list[str]:
        """Return the command of a program of the bundle."""
        return [str(self.bundle / "bin" / name), *map(str, arguments)]

    def env(
        self, library: str = NONE, memory_mib: int = 0, cores: int = 100, **more: str
    ) -> dict[str, str]:
        """Return the environment of a new container; 0 MiB mean no limit of memory.

        Raises NotTried if the library is not given.
        """
        env = {
            name: text
            for name, text in os.environ.items()
            if name not in ("LD_PRELOAD", "CUDA_MPS_PIPE_DIRECTORY")
        }
        # One card, because a process initialises all that it sees.
        env.setdefault("CUDA_VISIBLE_DEVICES", "0")
        env["CUDA_CACHE_PATH"] = str(self.folder / "cache")
        if self.turns:
            env["GPU_CHECK_TURNS"] = str(self.turns)
        if self.stub:
            env["LD_LIBRARY_PATH"] = str(self.bundle / "stub")
            env["VGPU_STUB_STATE"] = str(self.folder / "stub")
            env["VGPU_STUB_CONTEXT_BYTES"] = str(STUB_CONTEXT)
            env["VGPU_STUB_MODULE_BYTES"] = str(STUB_MODULE)
            env["VGPU_STUB_ARRAY_ROWS"] = str(STUB_ROWS)
            env["VGPU_STUB_FREE_IN_ORDER"] = "1"
        if library != NONE:
            env.update(self._limits(self._path_of(library), memory_mib, cores))
        return env | more

    def _path_of(self, library: str) -> Path:
        if library == OURS:
            return self.library
        if self.hami is None:
            raise NotTried("HAMi-core's library is not given: --hami FILE")
        return self.hami

    def _limits(self, path: Path, memory_mib: int, cores: int) -> dict[str, str]:
        self.regions += 1
        limits = {
            "LD_PRELOAD": str(path),
            "CUDA_DEVICE_SM_LIMIT": str(cores),
            "GPU_CORE_UTILIZATION_POLICY": "force",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.folder / f"region-{self.regions}"),
        }
        return limits | ({"CUDA_DEVICE_MEMORY_LIMIT_0": f"{memory_mib}m"} if memory_mib else {})

    def left(self) -> float:
        """Return the seconds that the part still has."""
        return max(self.deadline - time.monotonic(), 0.0)

    def run(self, command: list[str], env: dict[str, str], seconds: float = PROGRAM_SECONDS) -> Ran:
        """Run a program to its end. Raises Broken if it fails, NotTried if it cannot run here."""
        with self.start(command, env) as running:
            return running.end(seconds)

    def start(self, command: list[str], env: dict[str, str]) -> Started:
        """Start a program in a process group of its own, which ends with this process."""
        if self.left() <= 0:
            raise Broken("the time of the part is used up")
        return Started(self, command, env)


class Started:
    """A running program, which may pause at steps."""

    def __init__(self, bench: Bench, command: list[str], env: dict[str, str]) -> None:
        """Start it."""
        self.bench, self.command = bench, command
        self.errors = bench.folder / f"stderr-{time.monotonic_ns()}"
        pipe = subprocess.PIPE
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                env=env,
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
                text=True,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509
            )
        self.pid = self.process.pid

    def end(self, seconds: float = PROGRAM_SECONDS, status: int | None = 0) -> Ran:
        """Wait for the end, but not beyond the time of the part. Raises Broken, NotTried."""
        most = min(seconds, self.bench.left())
        try:
            out, _ = self.process.communicate(timeout=most or 0.01)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Broken(f"{self.name} did not end within {most:.1f} s") from None
        rows = [line.split("\t") for line in out.splitlines()]
        ran = Ran(self.process.returncode, rows, self.errors.read_text(errors="replace").strip())
        if ran.status == ABSENT:
            raise NotTried(
                ran.stderr.splitlines()[-1] if ran.stderr else f"{self.name} cannot run here"
            )
        if status is not None and ran.status != status:
            raise Broken(f"{self.name} ended with {ran.status}: {ran.stderr[-300:]}", ran.result)
        return ran

    def line(self) -> list[str]:
        """Return the cells of the next line.

        Raises Broken at the end of output or time, NotTried if the program cannot run here.
        """
        assert self.process.stdout is not None
        timer = _Alarm(self.bench.left(), self.kill)
        with timer:
            text = self.process.stdout.readline()
        if text:
            return text.rstrip("\n").split("\t")
        self.process.wait(timeout=10)
        stderr = self.errors.read_text(errors="replace").strip()
        if self.process.returncode == ABSENT:
            raise NotTried(stderr.splitlines()[-1] if stderr else f"{self.name} cannot run here")
        reason = "was ended at its deadline" if timer.rang else f"ended: {stderr[-300:]}"
        raise Broken(f"{self.name} {reason}", Ran(1, [], stderr).result)

    def resume(self) -> None:
        """Let it go on after a step."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return  # the next line reports the end

    def kill(self) -> None:
        """End its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    @property
    def name(self) -> str:
        """Return program and arguments without folders."""
        return " ".join([Path(self.command[0]).name, *self.command[1:]])[:120]

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.wait(timeout=10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class _Alarm:
    """Calls a function if a block takes longer than some seconds."""

    def __init__(self, seconds: float, ring: object) -> None:
        self._seconds, self._ring, self.rang = seconds, ring, False

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._call)
        signal.setitimer(signal.ITIMER_REAL, max(self._seconds, 0.01))

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _call(self, *_: object) -> None:
        self.rang = True
        self._ring()  # type: ignore[operator]


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
