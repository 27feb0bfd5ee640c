"""NVML through its Python bindings, on the stub of the library: cards, processes, errors."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.native_library import machine

pytestmark = pytest.mark.integration

CARDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in range(2))
USED = 3 << 20

HOLDING = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1)
assert not cuda.cuCtxSetCurrent(context)
assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(3 << 20))
print("held", flush=True)
sys.stdin.read()
"""

ASKING = """
import ctypes, json, msgspec
from vgpu_native.nvml.nvml_library import NvmlLibrary
nvml = NvmlLibrary()
gpus = nvml.gpus()
assert nvml.xid(0.0) is None
ctypes.CDLL("libnvidia-ml.so.1").vgpu_stub_xid(1, 48)
observed = {
    "gpus": gpus,
    "loads": {gpu.uuid: nvml.load(gpu.uuid) for gpu in gpus},
    "processes": {gpu.uuid: nvml.processes(gpu.uuid) for gpu in gpus},
    "scores": [[*pair, score] for pair, score in nvml.scores().items()],
    "xid": nvml.xid(2.0),
}
nvml.close()
assert nvml.gpus() == gpus, "it starts again after its end"
print(msgspec.json.encode(observed).decode())
"""

LOSING = """
import ctypes, msgspec
from vgpu_native.nvml.nvml_port import NvmlError
from vgpu_native.nvml.nvml_library import NvmlLibrary
nvml, refused = NvmlLibrary(), ""
before = nvml.gpus()
stub = ctypes.CDLL("libnvidia-ml.so.1")
stub.vgpu_stub_lose(0, 1)
left = nvml.gpus()
loads = {gpu.uuid: nvml.load(gpu.uuid) for gpu in left}
assert nvml.xid(0.0) is None, "the other one's errors are waited for"
stub.vgpu_stub_lose(0, 0)
stub.vgpu_stub_lose(1, 1)
stub.vgpu_stub_xid(1, 79)
nvml.gpus()
told = nvml.xid(2.0)
stub.vgpu_stub_lose(0, 1)
stub.vgpu_stub_lose(1, 1)
try:
    nvml.gpus()
except NvmlError as error:
    refused = str(error)
observed = {"before": before, "left": left, "loads": loads, "refused": refused, "told": told}
print(msgspec.json.encode(observed).decode())
"""

REFUSED = """
from vgpu_native.nvml.nvml_port import NvmlError
from vgpu_native.nvml.nvml_library import NvmlLibrary
try:
    NvmlLibrary().load("GPU-none")
except NvmlError as error:
    print(error)
"""


def asked(text: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def holding(environment: dict[str, str]) -> Iterator[int]:
    """Run a process that holds memory of the second card; yields its pid."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.stdin.close()


def test_cards_and_their_load_are_read_from_the_library(tmp_path: Path) -> None:
    environment = machine(tmp_path / "machine", 2, "1g")
    with holding(environment) as pid:
        report: dict[str, Any] = json.loads(asked(ASKING, environment))
    assert [(gpu["uuid"], gpu["index"], gpu["memory"]) for gpu in report["gpus"]] == [
        (CARDS[0], 0, 1 << 30),
        (CARDS[1], 1, 1 << 30),
    ]
    assert [report["loads"][card]["memory"] for card in CARDS] == [0, USED]
    assert report["processes"] == {CARDS[0]: [], CARDS[1]: [{"pid": pid, "memory": USED}]}
    assert {tuple(score[:2]) for score in report["scores"]} == {CARDS, CARDS[::-1]}
    assert report["xid"] == {"uuid": CARDS[1], "number": 48}


def test_a_card_that_fell_off_its_bus_takes_no_other_with_it(tmp_path: Path) -> None:
    report: dict[str, Any] = json.loads(asked(LOSING, machine(tmp_path / "machine", 2, "1g")))
    assert [gpu["uuid"] for gpu in report["before"]] == list(CARDS)
    assert [(gpu["uuid"], gpu["index"]) for gpu in report["left"]] == [(CARDS[1], 1)]
    assert list(report["loads"]) == [CARDS[1]]
    assert report["told"] == {"uuid": CARDS[1], "number": 79}
    assert report["refused"].startswith("NVML: the list of cards: ")


def test_a_card_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = asked(REFUSED, machine(tmp_path / "machine"))
    assert said.startswith("NVML: card GPU-none: ")


def test_a_machine_without_the_library_gets_a_remedy() -> None:
    said = asked(REFUSED, {"LD_LIBRARY_PATH": ""})
    if "libnvidia-ml.so.1 is not found" not in said:
        pytest.skip("this machine has NVIDIA's library")
    assert "NVIDIA_VISIBLE_DEVICES=all" in said
