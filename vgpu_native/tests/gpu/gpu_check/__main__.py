"""Check libvgpu.so on this machine's GPU, part by part, within a budget of time.

Prints a line for each part when it has ended, then a table. `results.json` in the folder of results
has everything, and is written after each part. The status is 1 if a promise failed, 2 if a
measurement was impossible, else 0.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpu_check import table
from gpu_check.bench import Bench
from gpu_check.build_here import BuildFailed, build, starts
from gpu_check.nvml import Nvml, NvmlFailed
from gpu_check.outcome import NOT_TRIED, Broken, NotTried
from gpu_check.report import Report, UnreadableResults
from gpu_check.schedule import PARTS, Part

BUDGET_S, QUICK_S = 480.0, 60.0
LAST_S, LEAST_S = 3.0, 1.0
"""Kept for the table; and the least time for which a part is begun."""

EXAMPLES = """examples:
  run                                 all parts, 8 minutes at most, into ./gpu-check-TIME
  run --quick                         fewer and shorter measurements, a minute
  run --stub --quick                  the same without a GPU, on the stub driver
  run --out results                   into the folder results
  run --only patterns --only tenants  these parts
  run --resume DIR                    the parts that DIR has not measured yet
  run --give libcudart.so.12 --give WHEELS/ --hami libvgpu.so
"""


class Interrupted(BaseException):
    """A signal asks the run to end. No handler of errors stops it."""


def main() -> int:
    """Run the parts and return the exit status."""
    arguments = _arguments()
    if arguments.list:
        return _list()
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, _interrupt)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        try:
            bench = _bench(arguments, Path(folder))
            report = _report(arguments, bench)
        except (BuildFailed, UnreadableResults) as error:
            print(error, file=sys.stderr)
            return 2
        chosen = [
            part
            for part in PARTS
            if not arguments.only or part.name in ("machine", *arguments.only)
        ]
        _run_all(bench, report, chosen, arguments.budget)
    text = table.render(report.content)
    (report.folder / "table.txt").write_text(text)
    print("\n" + text, end="")
    return _status(report.parts)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--stub", action="store_true", help="use the stub driver, not a GPU")
    add("--quick", action="store_true", help="fewer and shorter measurements")
    add(
        "--budget",
        type=float,
        metavar="SECONDS",
        help=f"of the whole run, default {BUDGET_S:.0f}, with --quick {QUICK_S:.0f}",
    )
    add(
        "--only",
        action="append",
        default=[],
        metavar="PART",
        choices=[part.name for part in PARTS],
        help="only this part; may be repeated",
    )
    add("--list", action="store_true", help="list the parts and end")
    add("--out", type=Path, metavar="DIR", help="folder of the results")
    add("--resume", type=Path, metavar="DIR", help="continue the run of this folder")
    add(
        "--library",
        type=Path,
        metavar="FILE",
        help="another libvgpu.so, such as one with a planted defect",
    )
    add("--hami", type=Path, metavar="FILE", help="HAMi-core's library, to be measured beside")
    add(
        "--give",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="a libcudart, a wheel of PyTorch or CuPy, or a folder of them",
    )
    add("--build", action="store_true", help="build programs and library here with gcc")
    add("--bundle", type=Path, required=True, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.budget is None:
        arguments.budget = QUICK_S if arguments.quick else BUDGET_S
    return arguments


def _list() -> int:
    for part in PARTS:
        print(f"{part.name:<20} {part.seconds:3.0f} s  {part.asks} Expected: {part.expected}")
    return 0


def _bench(arguments: argparse.Namespace, folder: Path) -> Bench:
    bundle = arguments.bundle.resolve()
    if arguments.build or not starts(bundle):
        print("the programs are built here", file=sys.stderr)
        driver = bundle / "stub" / "libcuda.so.1" if arguments.stub else None
        bundle = build(bundle, folder / "built", driver)
    library = (arguments.library or bundle / "libvgpu.so").resolve()
    hami = arguments.hami.resolve() if arguments.hami else None
    bench = Bench(
        bundle,
        folder,
        arguments.stub,
        arguments.quick,
        library,
        hami,
        tuple(path.resolve() for path in arguments.give),
    )
    if bench.stub:
        os.environ["VGPU_STUB_STATE"] = str(folder / "stub")
    try:
        bench.nvml = Nvml(str(bundle / "stub" / "libnvidia-ml.so.1")) if bench.stub else Nvml()
    except NvmlFailed as error:
        print(f"NVML is not read: {error}", file=sys.stderr)
    return bench


def _report(arguments: argparse.Namespace, bench: Bench) -> Report:
    started = datetime.now(timezone.utc)  # noqa: UP017
    folder = arguments.resume or arguments.out or Path(f"gpu-check-{started:%Y%m%d-%H%M%S}")
    folder.mkdir(parents=True, exist_ok=True)
    commit = bench.bundle / "commit"
    run: dict[str, Any] = {
        "driver_kind": "stub" if bench.stub or (bench.nvml and bench.nvml.is_stub) else "gpu",
        "commit": commit.read_text().strip() if commit.exists() else "unknown",
        "started": f"{started:%Y-%m-%dT%H:%M:%SZ}",
        "budget_s": arguments.budget,
        "quick": bench.quick,
        "library": str(arguments.library.resolve()) if arguments.library else bench.library.name,
        "hami": str(bench.hami or ""),
        "python": sys.version.split()[0],
        "kernel": os.uname().release,
        "processors": os.cpu_count(),
    }
    report = Report(folder, run)
    if arguments.resume:
        kept = report.resume()
        print(f"kept from before: {', '.join(kept) or 'nothing'}", file=sys.stderr)
    report.content["card"].update(bench.nvml.facts() if bench.nvml else {})
    report.write()
    return report


def _run_all(bench: Bench, report: Report, parts: list[Part], budget: float) -> None:
    end = time.monotonic() + budget - LAST_S
    print("\n".join(table.head(report.content)) + "\n", flush=True)
    reason = ""
    for part in parts:
        left = end - time.monotonic()
        if part.name in report.parts and part.name != "machine":
            continue
        if not reason and left < LEAST_S:
            reason = f"the budget of {budget:.0f} s is used up"
        if reason:
            report.put(part.name, _part(part, reason, 0.0))
        else:
            usual = part.quick if bench.quick else part.seconds
            bench.deadline = time.monotonic() + min(left, usual * 3 + 10)
            try:
                report.put(part.name, _measured(bench, report, part, end))
            except Interrupted:
                reason = "the run was interrupted"
                cut = {"impossible": True, "measurements": bench.findings.rows}
                report.put(part.name, _part(part, reason, 0.0) | cut)
        print(table.line(part.name, report.parts[part.name]), flush=True)


def _measured(bench: Bench, report: Report, part: Part, end: float) -> dict[str, Any]:
    begun, reason, result, impossible = time.monotonic(), "", None, False
    findings = bench.begin()
    try:
        if not part.promise and bench.hami is None:
            raise NotTried("HAMi-core's library is not given: --hami FILE")
        findings = part.measure(bench)
    except NotTried as error:
        findings, reason = bench.findings, str(error)
    except (Broken, NvmlFailed) as error:
        findings = bench.findings
        cut = time.monotonic() >= end
        reason = "the budget ended it" if cut else f"a measurement was impossible: {error}"
        impossible = not cut
        result = error.result if isinstance(error, Broken) else None
    except Exception as error:  # noqa: BLE001  # One part must not cost the results of the others.
        findings, impossible = bench.findings, True
        reason = f"a measurement was impossible: {type(error).__name__}: {error}"
    content = _part(part, reason, time.monotonic() - begun) | {
        "impossible": impossible,
        "complete": not reason,
    }
    content.update(measurements=findings.rows, compared=findings.compared, notes=findings.notes)
    if not reason or findings.failed:
        verdict, why, cuda = findings.verdict()
        content.update(verdict=verdict, reason="; ".join(filter(None, (why, reason))), cuda=cuda)
    elif result is not None:
        content["cuda"] = {"code": result.code, "name": result.name, "call": result.call}
    if part.name == "machine":
        report.content["card"].update(bench.card, turns_per_us=bench.turns)
    return content


def _part(part: Part, reason: str, seconds: float) -> dict[str, Any]:
    """Return a part that has no measurement, for a reason."""
    return {
        "asks": part.asks,
        "expected": part.expected,
        "first_file": part.first_file,
        "promise": part.promise,
        "verdict": NOT_TRIED,
        "reason": reason,
        "impossible": False,
        "complete": False,
        "cuda": {"code": 0, "name": "CUDA_SUCCESS", "call": ""},
        "seconds": round(seconds, 2),
        "measurements": [],
        "compared": [],
        "notes": [],
    }


def _status(parts: dict[str, dict[str, Any]]) -> int:
    promises = [part for part in parts.values() if part["promise"]]
    if any(part["verdict"] == "fails" for part in promises):
        return 1
    return 2 if any(part["impossible"] for part in promises) else 0


def _interrupt(*_: object) -> None:
    raise Interrupted


if __name__ == "__main__":
    sys.exit(main())
