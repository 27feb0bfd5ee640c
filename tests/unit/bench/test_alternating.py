"""Two checkouts measure in turn, and their rows are compared by name."""

from pathlib import Path

import msgspec
import pytest

from tests.bench.harness import alternating, results
from tests.bench.harness.results import Report, result


def checkout(folder: Path, log: Path, status: int = 0, **values: float) -> Path:
    """Make a checkout whose interpreter notes its start and prints a report."""
    report = Report(results.machine(), [result(name, values[name], "ms") for name in values])
    python = folder / alternating.PYTHON
    python.parent.mkdir(parents=True)
    (folder / "report").write_bytes(msgspec.json.encode(report))
    python.write_text(f'#!/bin/sh\necho {folder.name} "$@" >>{log}\ncat report\nexit {status}\n')
    python.chmod(0o755)
    return folder


def test_checkouts_take_turns_and_shared_rows_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(alternating, "ROOT", checkout(tmp_path / "here", log, both=2, only_here=1))
    other = checkout(tmp_path / "there", log, both=4, only_there=1)
    assert alternating.compare(other, ["core"], 2) == 0
    started = [line.split() for line in log.read_text().splitlines()]
    assert [words[0] for words in started] == ["there", "here", "here", "there"]
    assert started[0][1:] == ["-m", "tests.bench", "--quick", "--json", "--only", "core"]
    table = capsys.readouterr().out
    row = next(line.split() for line in table.splitlines() if line.split()[:1] == ["both"])
    assert row == ["both", "4", "2", "0.500", "0.50", "0.50"]
    assert "only_here" not in table
    assert "only_there" not in table


def test_checkout_that_fails_ends_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(alternating, "ROOT", checkout(tmp_path / "here", log, both=2))
    other = checkout(tmp_path / "there", log, status=1, both=4)
    with pytest.raises(RuntimeError, match=r"there: .* failed"):
        alternating.compare(other, None, 1)
