"""The table of a run: verdicts, the comparison of libraries, and the failures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpu_check.outcome import FAILS, HOLDS, NOT_TRIED, describe

NOT_ON_A_GPU = "NOT RUN ON A GPU: this run used the stub driver, and its figures describe no card."
LIBRARIES = ("none", "ours", "hami")
HEADINGS = {"none": "none", "ours": "gpuledger", "hami": "HAMi-core"}
WIDTH, REASON = 100, 220
"""Characters of a cell of the table, and of a line that appears while the run goes on."""


def render(content: dict[str, Any]) -> str:
    """Return the table of results as text."""
    parts: dict[str, dict[str, Any]] = content["parts"]
    lines = [*head(content), "", *_verdicts(parts), *_comparison(parts), *_failures(parts), ""]
    return "\n".join([*lines, summary(parts)]) + "\n"


def head(content: dict[str, Any]) -> list[str]:
    """Return the lines that describe run and card; the first one of a stub's run warns."""
    run, card = content["run"], content["card"]
    lines = [NOT_ON_A_GPU] if run["driver_kind"] == "stub" else []
    name = card.get("name", "unknown card")
    lines.append(
        f"{name}, driver {card.get('driver', 'unknown')}, CUDA {card.get('driver_api', 'unknown')}"
    )
    return [*lines, f"bundle {run['commit']}, {run['started']}, budget {run['budget_s']:.0f} s"]


def line(name: str, part: dict[str, Any]) -> str:
    """Return the line that appears when a part has ended."""
    reason = f": {part['reason'][:REASON]}" if part["reason"] else ""
    return f"{name:<20} {part['verdict']:<10} {part['seconds']:5.1f} s  {_cuda(part)}{reason}"


def summary(parts: dict[str, dict[str, Any]]) -> str:
    """Return the last line."""
    promises = {name: part for name, part in parts.items() if part["promise"]}
    by_verdict = {
        verdict: [name for name, part in promises.items() if part["verdict"] == verdict]
        for verdict in (HOLDS, FAILS, NOT_TRIED)
    }
    if by_verdict[FAILS]:
        return "NOT as promised: " + ", ".join(by_verdict[FAILS])
    broken = [name for name, part in promises.items() if part["impossible"]]
    if broken:
        return "NOT measured: " + ", ".join(broken)
    more = f"; not tried: {', '.join(by_verdict[NOT_TRIED])}" if by_verdict[NOT_TRIED] else ""
    return f"All measured promises held ({len(by_verdict[HOLDS])} parts){more}"


def _verdicts(parts: dict[str, dict[str, Any]]) -> Iterable[str]:
    rows = [["part", "verdict", "CUresult", "measured"]]
    for name, part in parts.items():
        rows.append([name, part["verdict"], _cuda(part), _measured(part)])
    return _columns(rows)


def _cuda(part: dict[str, Any]) -> str:
    cuda = part["cuda"]
    if part["verdict"] == NOT_TRIED and not cuda["code"]:
        return "-"
    return f"{cuda['name']} ({cuda['code']})"


def _measured(part: dict[str, Any]) -> str:
    if part["reason"]:
        return str(part["reason"])[:WIDTH]
    checked = [row for row in part["measurements"] if row["ok"] is not None]
    count = f"{len(checked)} measurement{'' if len(checked) == 1 else 's'}"
    return f"{count} as expected ({part['expected']})"[:WIDTH]


def _comparison(parts: dict[str, dict[str, Any]]) -> Iterable[str]:
    merged: dict[str, dict[str, Any]] = {}
    for part in parts.values():
        for row in part["compared"]:
            merged.setdefault(row["measure"], {}).update(row)
    if not merged:
        return []
    rows = [["measure", "unit", *HEADINGS.values()]]
    for measure, row in merged.items():
        rows.append([measure, row["unit"], *(_number(row.get(library)) for library in LIBRARIES)])
    return ["", *_columns(rows)]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _failures(parts: dict[str, dict[str, Any]]) -> Iterable[str]:
    for name, part in parts.items():
        if part["verdict"] != FAILS or not part["promise"]:
            continue
        yield ""
        yield f"{name}: {part['asks']} Expected: {part['expected']}."
        yield f"  Read first: {part['first_file']}"
        for row in part["measurements"]:
            if row["ok"] is False:
                yield f"  {describe(row)}  [{row['cuda']['name']} ({row['cuda']['code']})]"


def _columns(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    return ["  ".join(cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip() for row in rows]
