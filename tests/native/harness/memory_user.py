"""Programs of the tests of memory: run under limits, and asked while they run."""

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Self

MIB = 1 << 20
OUT_OF_MEMORY = 2
_RUN_S = 120.0


def environment(native: Path, directory: Path, limit: str, **settings: str) -> dict[str, str]:
    """Return the environment of a container's process, whose files are in a directory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CUDA")}
    return {
        **kept,
        "LD_PRELOAD": str(native / "libvgpu.so"),
        "LD_LIBRARY_PATH": str(native / "stub"),
        "CUDA_DEVICE_MEMORY_LIMIT": limit,
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(directory / "region"),
        "VGPU_STUB_STATE": str(directory / "machine"),
        "VGPU_STUB_DEVICES": "2",
        **settings,
    }


def run(environ: dict[str, str], program: Path, *arguments: str) -> str:
    """Return the output of a program. Raises AssertionError with its errors if it fails."""
    done = subprocess.run(
        [program, *arguments],
        env=environ,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Shell:
    """A process that takes and gives memory by commands: tests/programs/memory_shell.c."""

    def __init__(self, environ: dict[str, str], program: Path, ordinal: int = 0) -> None:
        """Start it on a device."""
        self.process = subprocess.Popen(
            [program, str(ordinal)],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.used()  # it has begun, and reserves nothing for a moment any more

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.kill()

    def ask(self, command: str) -> list[int]:
        """Return the numbers of the answer. Raises AssertionError if it has died."""
        writes, reads = self.process.stdin, self.process.stdout
        assert writes is not None
        assert reads is not None
        writes.write(command + "\n")
        writes.flush()
        line = reads.readline()
        assert line, f"it died at: {command}"
        return [int(word) for word in line.split()]

    def take(self, bytes_: int, allocator: str = "linear") -> int:
        """Take memory; return the driver's result."""
        return self.ask(f"take {allocator} {bytes_}")[0]

    def give(self) -> int:
        """Give back what was taken last; return the driver's result."""
        return self.ask("give")[0]

    def info(self) -> tuple[int, int]:
        """Return free and total bytes, which CUDA and NVML must report alike."""
        free, total, nvml_total, nvml_free, nvml_used = self.ask("info")
        assert (nvml_total, nvml_free, nvml_used) == (total, free, total - free)
        return free, total

    def used(self) -> int:
        """Return the bytes of the device that are used in truth, by all."""
        return self.ask("used")[0]

    def kill(self) -> None:
        """Kill it, if it lives, and wait for its end."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
