"""The outcome of a part: measurements with their expected ranges, and the verdict on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

HOLDS, FAILS, NOT_TRIED = "holds", "fails", "not tried"


@dataclass(frozen=True)
class CuResult:
    """A result of the driver: its number, its name, and the call that returned it."""

    code: int = 0
    name: str = "CUDA_SUCCESS"
    call: str = ""


SUCCESS = CuResult()


class NotTried(Exception):
    """The part cannot be measured here; the message is the reason."""


class Broken(Exception):
    """A program of the bundle failed; the message has its standard error."""

    def __init__(self, message: str, result: CuResult = SUCCESS) -> None:
        """Remember the driver's result."""
        super().__init__(message)
        self.result = result


@dataclass
class Findings:
    """The measurements of one part, and the rows that compare libraries."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    compared: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(
        self,
        measure: str,
        value: float,
        unit: str,
        low: float | None = None,
        high: float | None = None,
        result: CuResult = SUCCESS,
    ) -> None:
        """Add a measurement; without bounds it is only reported."""
        value, bounded = round(value, 3), low is not None or high is not None
        good = (low is None or value >= low) and (high is None or value <= high)
        row: dict[str, Any] = {"measure": measure, "value": value, "unit": unit}
        row.update(low=low, high=high, ok=good if bounded else None)
        row["cuda"] = {"code": result.code, "name": result.name, "call": result.call}
        self.rows.append(row)

    def expect(self, measure: str, good: bool, seen: str, result: CuResult = SUCCESS) -> None:
        """Add a measurement that is a text."""
        cuda = {"code": result.code, "name": result.name, "call": result.call}
        self.rows.append({"measure": measure, "value": seen, "unit": "", "ok": good, "cuda": cuda})

    def compare(self, measure: str, unit: str, **by_library: float | None) -> None:
        """Add a row of the table that compares no library, this one and HAMi-core."""
        values = {name: None if v is None else round(v, 2) for name, v in by_library.items()}
        self.compared.append({"measure": measure, "unit": unit, **values})

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Return the measurements outside of their ranges."""
        return [row for row in self.rows if row["ok"] is False]

    def verdict(self) -> tuple[str, str, dict[str, Any]]:
        """Return the verdict, its reason, and the driver's result at the first failure."""
        checked = [row for row in self.rows if row["ok"] is not None]
        if not checked:
            return NOT_TRIED, "nothing was measured that has an expected range", _none()
        if not self.failed:
            return HOLDS, "", checked[-1]["cuda"]
        row, more = self.failed[0], len(self.failed) - 1
        reason = describe(row) + (f", and {more} more" if more else "")
        return FAILS, reason, row["cuda"]


def describe(row: dict[str, Any]) -> str:
    """Return a measurement as a text, with its expected range."""
    if isinstance(row["value"], str):
        return f"{row['measure']}: {row['value']}"
    low, high = row.get("low"), row.get("high")
    places = _places(row["value"], low, high)
    text = f"{row['measure']}: {row['value']:,.{places}f} {row['unit']}".rstrip()
    if low is not None and high is not None:
        return f"{text}, expected {low:,.{places}f} to {high:,.{places}f}"
    if low is not None:
        return f"{text}, expected at least {low:,.{places}f}"
    return f"{text}, expected at most {high:,.{places}f}" if high is not None else text


def _places(value: float, *bounds: float | None) -> int:
    """Return the decimals, 1 to 3, with which a value does not look like a bound."""
    near = [bound for bound in bounds if bound is not None]
    return next((n for n in (1, 2) if all(f"{value:.{n}f}" != f"{b:.{n}f}" for b in near)), 3)


def _none() -> dict[str, Any]:
    return {"code": 0, "name": "CUDA_SUCCESS", "call": ""}
