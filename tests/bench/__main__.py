"""Measure everything, print a table and write it as JSON.

`--only NAME`, `--quick`, `--json`; `--against CHECKOUT` alternates with another checkout.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path

from rich.console import Console

from tests.bench.harness import alternating, results
from tests.bench.harness.results import Report, Result

NAMES = (
    "core",
    "https",
    "review_tail",
    "history",
    "large_state",
    "lag",
    "replicas",
    "decisions",
    "recounts",
    "pod_creation",
    "claims",
    "node_fit",
    "extender",
    "scheduling",
    "native",
    "trips",
)

COLUMNS_MIN = 120
"""Width that keeps the table whole when the output is not a terminal."""


def main() -> int:
    """Run the measurements; the status is 1 when one of them failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", choices=NAMES, action="append", help="may be given several times")
    parser.add_argument("--quick", action="store_true", help="small and imprecise, in two minutes")
    parser.add_argument("--json", action="store_true", help="print the results as JSON alone")
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn")
    parser.add_argument("--pairs", type=int, default=3, help="with --against, how often each")
    arguments = parser.parse_args()
    if arguments.against:
        return alternating.compare(arguments.against, arguments.only, arguments.pairs)
    console = Console(stderr=arguments.json)
    console.width = max(console.width, COLUMNS_MIN)
    machine, measured = results.machine(), list[Result]()
    skipped, failed = list[str](), list[str]()
    for name in arguments.only or NAMES:
        started = time.perf_counter()
        try:
            measured += _measured(name, arguments.quick)
        except results.Skipped as error:
            skipped.append(f"{name}: {error}")
        except (RuntimeError, OSError, AssertionError) as error:
            failed.append(f"{name}: {error}")
        console.print(f"[dim]{name}: {time.perf_counter() - started:.0f} s[/]")
    console.print(results.table(measured))
    console.print(results.notes(measured), highlight=False, style="dim")
    if arguments.json:
        print(results.encoded(Report(machine, measured)).decode(), end="")
    if not (arguments.only or arguments.quick or skipped):
        results.write(Report(machine, measured))
    for reason in skipped:
        console.print(f"[yellow]skipped[/] {reason}")
    for problem in failed:
        console.print(f"[red]failed[/] {problem}")
    return bool(failed)


def _measured(name: str, quick: bool) -> list[Result]:
    package = "tests.bench" if name in ("claims", "trips") else "tests.bench.measurements"
    measured: list[Result] = importlib.import_module(f"{package}.{name}").run(quick)
    return measured


if __name__ == "__main__":
    sys.exit(main())
