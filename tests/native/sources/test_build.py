"""Whatever is built first, and by however many jobs: what it needs is made before it."""

import subprocess
import sys
from pathlib import Path

import pytest
from native.harness.builds import NATIVE


@pytest.mark.parametrize(
    "target",
    [
        "objects/memory/linear.c.o",
        "stub/objects/cuda_memory/cuda_array.o",
        "stub/objects/nvml/nvml_device.o",
        "abi/forwards.o",
        "tests/side_effects",
        "gpu-bundle/bin/view",
    ],
)
def test_what_includes_cudas_headers_waits_for_them(tmp_path: Path, target: str) -> None:
    made = f"{tmp_path}/{target}"
    command = ["make", "-n", f"BUILD={tmp_path}", f"PYTHON={sys.executable}", made]
    said = subprocess.run(
        command, cwd=NATIVE, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    headers, compiled = said.find(f"--target {tmp_path}/headers"), said.find(made)
    assert 0 <= headers < compiled
