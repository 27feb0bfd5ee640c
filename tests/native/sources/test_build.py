"""Each target is built after its dependencies, in any order and with any number of jobs."""

import subprocess
import sys
from pathlib import Path

import pytest
from native.harness.builds import NATIVE


@pytest.mark.parametrize(
    "target",
    [
        "objects/memory/linear_memory.c.o",
        "stub/objects/cuda_memory/cuda_array.o",
        "stub/objects/nvml/nvml_device.o",
        "abi/forwards.o",
        "tests/side_effects",
        "gpu-bundle/bin/view",
    ],
)
def test_sources_that_include_cuda_headers_are_built_after_them(
    tmp_path: Path, target: str
) -> None:
    made = f"{tmp_path}/{target}"
    command = ["make", "-n", f"BUILD={tmp_path}", f"PYTHON={sys.executable}", made]
    said = subprocess.run(
        command, cwd=NATIVE, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    headers, compiled = said.find(f"--target {tmp_path}/headers"), said.find(made)
    assert 0 <= headers < compiled
