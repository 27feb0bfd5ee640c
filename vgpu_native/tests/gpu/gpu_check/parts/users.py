"""Real users of the driver: the CUDA runtime, PyTorch and CuPy, if they are here or given."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

from gpu_check.bench import OURS, Bench
from gpu_check.outcome import CuResult, Findings, NotTried
from gpu_check.parts.memory import TOLERANCE_MIB, walk

LIMIT_MIB = 4096
FRAMEWORK_MIB = 8192
RUNTIMES = (
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/lib/x86_64-linux-gnu",
)
FOLDERS_MAX = 64
NOT_SUPPORTED = 801
FRAMEWORK = Path(__file__).parents[1] / "frameworks" / "framework.py"


def runtime(bench: Bench) -> Findings:
    """Take memory by the runtime API up to the limit, and resolve its launch function."""
    reasons = []
    for library in _runtimes(bench):
        try:
            ran = bench.run(bench.program("runtime", library), bench.env(OURS, LIMIT_MIB, 50))
        except NotTried as reason:
            reasons.append(f"{library.name}: {reason}")
            continue
        findings = bench.begin()
        findings.notes.append(f"{library.name}, version {ran.texts.get('version')}")
        findings.add("memory in total", ran.values["total_mib"], "MiB", 0, LIMIT_MIB)
        for kind in ("cudaMalloc", "cudaMallocAsync"):
            error = next(row for row in ran.rows if row[0] == f"{kind}_error")
            refused = CuResult(int(error[1]), error[2], kind)
            given = ran.values[f"{kind}_mib"]
            if refused.code == NOT_SUPPORTED and not given:
                findings.notes.append(f"{kind} is not supported")
                continue
            least = ran.values["free_mib"] - 64
            findings.add(f"given by {kind}", given, "MiB", least, LIMIT_MIB, refused)
            findings.expect(f"the refusal of {kind}", refused.code == 2, refused.name, refused)
        where = ran.texts.get("launch_in", "unknown")
        findings.expect("the runtime's launch function is in", bench.library.name in where, where)
        return findings
    raise NotTried("; ".join(reasons) or "no libcudart is found or given: --give FILE")


def _runtimes(bench: Bench) -> list[Path]:
    folders = [
        bench.bundle / "lib",
        *map(Path, RUNTIMES),
        *(path for path in bench.given if path.is_dir()),
    ]
    files = [path for path in bench.given if path.name.startswith("libcudart.so")]
    for folder in folders:
        files += sorted(folder.glob("libcudart.so.*"))
    for site in sys.path:
        files += sorted(Path(site).glob("nvidia/*/lib/libcudart.so.*"))[:4]
    return list(dict.fromkeys(files))[:6]


def pytorch(bench: Bench) -> Findings:
    """Run PyTorch up to the limit, with cuBLAS."""
    return _framework(bench, "torch")


def cupy(bench: Bench) -> Findings:
    """Run CuPy up to the limit, with cuBLAS."""
    return _framework(bench, "cupy")


def _framework(bench: Bench, package: str) -> Findings:
    if bench.stub:
        raise NotTried(f"{package} cannot start on the stub")
    findings = bench.begin()
    env = bench.env(OURS, FRAMEWORK_MIB) | {"PYTHONDONTWRITEBYTECODE": "1"}
    env["PYTHONPATH"] = os.pathsep.join(map(str, _unpacked(bench, package)))
    walked = walk(bench, [sys.executable, str(FRAMEWORK), package], env)
    findings.add("memory in total", walked["context"].total, "MiB", 1, FRAMEWORK_MIB)
    for name in ("context", "product"):
        step = walked[name]
        findings.add(
            f"{name}: in use and not charged", step.used - step.counted, "MiB", None, TOLERANCE_MIB
        )
    findings.add(
        "given", float(walked.values["given_mib"]), "MiB", FRAMEWORK_MIB / 2, FRAMEWORK_MIB
    )
    refusal, product = walked.values["refused_by"], walked.values["product"]
    findings.expect(
        "the refusal",
        "OutOfMemory" in refusal,
        refusal,
        CuResult(2, "CUDA_ERROR_OUT_OF_MEMORY", package),
    )
    findings.expect("a product by cuBLAS near the limit", product == "right", product)
    return findings


def _unpacked(bench: Bench, package: str) -> list[Path]:
    """Return folders for Python's path: those that are given, and given wheels, unpacked once."""
    wheels = [path for path in bench.given if path.suffix == ".whl"]
    for folder in [path for path in bench.given if path.is_dir()]:
        wheels += sorted(folder.glob("*.whl"))[:FOLDERS_MAX]
    folders = [path for path in bench.given if path.is_dir() and (path / package).is_dir()]
    target = bench.folder / "wheels"
    for wheel in wheels:
        if not (target / f".{wheel.name}").exists():
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(target)
            (target / f".{wheel.name}").touch()
    return [*folders, target] if wheels else folders
