"""The machine and its driver: calibration, functions by name, ends of processes, MPS."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_check.bench import NONE, OURS, Bench, Started
from gpu_check.nvml import NvmlFailed
from gpu_check.outcome import Broken, CuResult, Findings, NotTried
from gpu_check.parts.memory import walk
from gpu_check.parts.shares import MEMORY_MIB, POINTS, US, Loads, control, together

ENDS = {
    "return": 0,
    "exit": 0,
    "thread": 0,
    "now": 0,
    "term": -signal.SIGTERM,
    "reset": 0,
    "threads": 0,
}
END_SECONDS = 10.0
MPS_SECONDS = 20.0
NAMES_SHOWN = 12


def machine(bench: Bench) -> Findings:
    """Describe the card, and calibrate the kernel that the other parts launch."""
    findings = bench.begin()
    ran = bench.run(bench.program("probe"), bench.env(NONE))
    values = ran.values
    bench.turns = values["turns_per_us"]
    if bench.nvml is not None:
        try:
            bench.nvml.choose(ran.texts["uuid"])
        except NvmlFailed as error:
            findings.notes.append(f"the card of CUDA is not found by NVML: {error}")
        others = ", ".join(map(str, sorted(bench.nvml.processes())))
        findings.notes.append(
            f"other processes on the card, which disturb shares: {others or 'none'}"
        )
    else:
        findings.notes.append("NVML cannot be read: parts that compare with it are not tried")
    bench.card = ran.texts
    findings.add("turns of the kernel in a microsecond", bench.turns, "", 1, None)
    findings.add("resolution of the timer in a kernel", values["timer_ns"], "ns")
    findings.add("an empty kernel", values["empty_kernel_ns"], "ns")
    for name, number in values.items():
        if name.startswith("bytes_of_"):
            findings.add(f"{int(name[9:]):,} B by cuMemAlloc take", number, "B")
    return findings


def without_library(bench: Bench) -> Findings:
    """Measure without a library: the check is worth nothing if it does not notice that."""
    findings = bench.begin()
    findings.add("share without a library, with 30 %", control(bench), "%", 30 + POINTS, None)
    filled = walk(bench, bench.program("steps", "fill", 64), bench.env(NONE))
    findings.add(
        "given without a library, with 256 MiB",
        float(filled.values["given_mib"]),
        "MiB",
        256 + 16,
        None,
        filled["full"].result,
    )
    return findings


def names(bench: Bench) -> Findings:
    """List the functions that the library's table lacks, and the hooks that are bypassed."""
    findings = bench.begin()
    plain = _asked(bench, bench.env(NONE))
    suspicious = re.compile(_table(bench)["suspicious"])
    unknown = plain["unknown"]
    serious = [name for name in unknown if suspicious.search(name)]
    findings.add("functions that the driver exports", plain["exported"], "", 100)
    findings.add("functions that the table lacks", len(unknown), "")
    findings.expect("of them, some may allocate or launch", not serious, _first(serious))
    findings.notes += [f"not in the table: {name} ({how})" for name, how in sorted(unknown.items())]
    limited = _asked(bench, bench.env(OURS, MEMORY_MIB, 50))
    findings.expect(
        "hooked functions that reach a program unhooked",
        not limited["unhooked"],
        _first(limited["unhooked"]),
    )
    return findings


def _first(texts: list[str]) -> str:
    more = len(texts) - NAMES_SHOWN
    return (", ".join(texts[:NAMES_SHOWN]) or "none") + (f" and {more} more" if more > 0 else "")


def _table(bench: Bench) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((bench.bundle / "functions.json").read_text())
    return table


def _asked(bench: Bench, env: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "gpu_check.driver_names", str(bench.bundle / "functions.json")]
    env = env | {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = bench.run(command, env)
    answer: dict[str, Any] = json.loads(ran.rows[-1][0])
    return answer


def ends(bench: Bench) -> Findings:
    """End processes in seven ways while launches are queued and measured."""
    findings = bench.begin()
    for way, status in ENDS.items():
        if bench.quick and way in ("exit", "now"):
            continue
        begun = time.monotonic()
        with bench.start(bench.program("ends", way), bench.env(OURS, MEMORY_MIB, 30)) as running:
            text, good, result = _end(running, status)
        if not good and not _ends_alone(bench, way, status):
            findings.notes.append(
                f"the end by {way}: {text}, and it fails without the library, too"
            )
            continue
        findings.expect(
            f"the end by {way}", good, f"{text} after {time.monotonic() - begun:.1f} s", result
        )
    return findings


def _end(running: Started, status: int) -> tuple[str, bool, CuResult]:
    try:
        ran = running.end(END_SECONDS, status=None)
    except Broken as error:
        return str(error), False, error.result
    return f"status {ran.status} {ran.stderr[-200:]}".rstrip(), ran.status == status, ran.result


def _ends_alone(bench: Bench, way: str, status: int) -> bool:
    with bench.start(bench.program("ends", way), bench.env(NONE)) as running:
        return _end(running, status)[1]


def mps(bench: Bench) -> Findings:
    """Measure two containers with 30 % each below an MPS server of this run alone."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or bench.stub:
        raise NotTried(
            "nvidia-cuda-mps-control is not on this machine"
            if not bench.stub
            else "the stub has no MPS"
        )
    folder = bench.folder / "mps"
    folder.mkdir(exist_ok=True)
    server = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    started = subprocess.run(
        [control, "-d"],
        env=os.environ | server,
        capture_output=True,
        text=True,
        timeout=MPS_SECONDS,
        check=False,
    )
    if started.returncode:
        raise NotTried(f"the MPS server did not start: {started.stderr.strip()[-200:]}")
    try:
        return _below_mps(bench, server)
    finally:
        subprocess.run(
            [control],
            env=os.environ | server,
            input="quit\n",
            text=True,
            timeout=MPS_SECONDS,
            check=False,
        )


def _below_mps(bench: Bench, server: dict[str, str]) -> Findings:
    findings, load = bench.begin(), (500 * US,)
    loads = Loads(bench, 3.0)
    loads.alone(load)
    users = [(load, bench.env(OURS, MEMORY_MIB, 30, **server)) for _ in range(2)]
    for rate in together(loads, users):
        findings.add(
            "30 % beside 30 %, with MPS",
            loads.percent(load, rate),
            "%",
            30 - POINTS,
            30 + POINTS,
            CuResult(),
        )
    return findings
