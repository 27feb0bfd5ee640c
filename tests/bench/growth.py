"""Growth: what becomes larger or slower with the number of events and holds, and by how much.

`python -m tests.bench.growth` measures at a tenth of the size and at the whole size, each in fresh
processes, and prints a table. EVENTS, HOLDS and ACCOUNTS of the environment set the whole size.
Ten million events take about an hour.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tests.bench.harness import results, stored_log
from tests.bench.harness.fresh_process import fresh
from tests.bench.objects import long_log

RESULTS: Final = results.LATEST.with_name("growth.json")
DIVISOR: Final = 10
SIZES: Final = {"EVENTS": 10_000_000, "HOLDS": 1_000_000, "ACCOUNTS": 100_000}

Numbers = dict[str, float]


class Row(NamedTuple):
    """One quantity: its unit, and its value from the numbers of one size."""

    name: str
    unit: str
    value: Callable[[Numbers], float]


ROWS: Final = (
    Row("log, as log_bytes_max counts it", "MB", lambda of: of["log_bytes"] / 1e6),
    Row("log, each event", "bytes", lambda of: of["log_bytes"] / of["events"]),
    Row("log on the disk", "MB", lambda of: of["disk_bytes"] / 1e6),
    Row("snapshot", "MB", lambda of: of["snapshot_bytes"] / 1e6),
    Row("snapshot, encoding", "s", lambda of: of["snapshot_seconds"]),
    Row("full replay, processor time", "s", lambda of: of["replay_computed"] * of["events"] / 1e6),
    Row("full replay, each event", "µs", lambda of: of["replay_computed"]),
    Row("restart, processor time", "s", lambda of: of["restart_computed"]),
    Row("restart, peak of memory", "MB", lambda of: of["restart_peak"] / 1e6),
    Row("state in memory", "MB", lambda of: of["restart_bytes"] / 1e6),
    Row("projection, rebuild", "s", lambda of: of["project_seconds"]),
    Row("projection, each event", "µs", lambda of: of["project_computed"] * 1e6),
    Row("projection, file", "MB", lambda of: of["project_bytes"] * of["events"] / 1e6),
    Row("question about the past", "ms", lambda of: of["project_question"] * 1e3),
)


def main() -> int:
    """Measure both sizes, print the table, and write it as JSON. Returns 0."""
    argparse.ArgumentParser("python -m tests.bench.growth", description=__doc__).parse_args()
    whole = {name: int(os.environ.get(name, default)) for name, default in SIZES.items()}
    part = {name: size // DIVISOR for name, size in whole.items()}
    measured = [_measured(size) for size in (part, whole)]
    table = Table("what grows", "unit", *map(_title, (part, whole)), "factor", box=SIMPLE_HEAD)
    for row in ROWS:
        few, many = (row.value(numbers) for numbers in measured)
        table.add_row(row.name, row.unit, f"{few:,.4g}", f"{many:,.4g}", f"{many / few:.2f}")
    Console(width=120).print(table)
    report = {"machine": results.machine(), "sizes": [part, whole], "numbers": measured}
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return 0


def _title(size: dict[str, int]) -> str:
    return f"{size['EVENTS']:,} events, {size['HOLDS']:,} holds"


def _measured(size: dict[str, int]) -> Numbers:
    counts = {"quotas": size["ACCOUNTS"], "holds": size["HOLDS"], "events": size["EVENTS"]}
    with tempfile.TemporaryDirectory() as store:
        made = fresh(long_log.prepare, store=store, **counts)
        files = [file for file in Path(store).rglob("*.blk") if "LEDGER-main-SNAP" not in str(file)]
        numbers = made | {"disk_bytes": sum(file.stat().st_size for file in files)}
        replayed = fresh(stored_log.replay, store=store, made=made)
        opened = fresh(stored_log.reopen, store=store)
        projected = fresh(stored_log.project, store=store, made=made)
    for prefix, values in (("replay", replayed), ("restart", opened), ("project", projected)):
        numbers |= {f"{prefix}_{name}": value for name, value in values.items()}
    return numbers


if __name__ == "__main__":
    sys.exit(main())
