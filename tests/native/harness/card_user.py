"""A process that makes the driver calls of a test. Tests start several of them, and kill them.

As a program it reads one call per line as JSON, `[library, function, arguments]`, and writes its
result and its out-parameters. In a test, `CardUser` is the other end.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

OUT = {"out": 8}
"""An argument: room for a word, which the call fills."""

CONTEXT_DEVICE = 0
_ANSWER_S = 30.0


class CardUser:
    """A process with the driver open, and a context that is current."""

    def __init__(
        self, libraries: Path, environment: dict[str, str], begin: bool = True, preload: str = ""
    ) -> None:
        """Start it. With `begin`, the driver is initialised and card 0 has a context."""
        given = {**os.environ, "LD_LIBRARY_PATH": str(libraries), **environment}
        if preload:
            given["LD_PRELOAD"] = preload
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=given
        )
        self.out: list[bytes] = []
        if begin:
            self.begin()

    @property
    def pid(self) -> int:
        """Return its number."""
        return self.process.pid

    def begin(self, device: int = CONTEXT_DEVICE) -> None:
        """Initialise the driver and make a card's context current."""
        self.ok("cuInit", 0)
        self.ok("cuCtxSetCurrent", self.ok("cuDevicePrimaryCtxRetain", OUT, device))

    def send(self, function: str, *arguments: Any, library: str = "libcuda.so.1") -> None:
        """Make a call without waiting for its end."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([library, function, arguments]).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> int:
        """Wait for the end of a call and return its result; `out` holds what it gave."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], _ANSWER_S)
        line = self.process.stdout.readline() if ready else b""
        assert line, f"no answer: the process ended with {self.process.poll()}"
        result, out = json.loads(line)
        self.out = [bytes.fromhex(each) for each in out]
        return int(result)

    def call(self, function: str, *arguments: Any, library: str = "libcuda.so.1") -> int:
        """Make a call and return its result."""
        self.send(function, *arguments, library=library)
        return self.answer()

    def ok(self, function: str, *arguments: Any) -> int:
        """Make a call that must succeed and return its first out-parameter as a number."""
        result = self.call(function, *arguments)
        assert result == 0, f"{function}{arguments} = {result}"
        return self.word() if self.out else 0

    def word(self, at: int = 0) -> int:
        """Return an out-parameter of the last call as a number."""
        return int.from_bytes(self.out[at][:8], "little")

    def used(self, device: int = CONTEXT_DEVICE) -> int:
        """Return the bytes of a card that are in use in truth, by all processes."""
        return self.call("vgpu_stub_used", device)

    def end(self, number: int = signal.SIGKILL) -> None:
        """Kill it and wait until it is gone."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                stream.close()


def _argument(given: Any, outs: list[Any]) -> Any:
    if isinstance(given, float):
        return ctypes.c_float(given)
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, int):
        return ctypes.c_uint64(given & 2**64 - 1)
    if "out" in given or "inout" in given:
        before = bytes.fromhex(given["inout"]) if "inout" in given else bytes(given["out"])
        outs.append(ctypes.create_string_buffer(before, len(before)))
        return outs[-1]
    if "in" in given:
        return bytes.fromhex(given["in"])
    value = bytes.fromhex(given["value"])

    class Value(ctypes.Structure):
        _fields_ = (("bytes", ctypes.c_char * len(value)),)

    return Value.from_buffer_copy(value)


def _answer(line: str, libraries: dict[str, Any]) -> str:
    library, function, arguments = json.loads(line)
    if library not in libraries:
        libraries[library] = ctypes.CDLL(library)
    called = getattr(libraries[library], function)
    called.restype = ctypes.c_uint64 if function.startswith("vgpu_stub") else ctypes.c_int
    outs: list[Any] = []
    result = called(*[_argument(each, outs) for each in arguments])
    return json.dumps([result, [out.raw.hex() for out in outs]])


def main() -> None:
    """Answer calls until there are no more."""
    libraries: dict[str, Any] = {"": ctypes.CDLL(None)}
    for line in sys.stdin:
        sys.stdout.write(_answer(line, libraries) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
