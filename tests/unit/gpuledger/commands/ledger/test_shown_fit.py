"""The sentences of `gpuledger fit` on a terminal."""

import pytest

from gpuledger.cli.output import Format
from gpuledger.commands.ledger import fit
from gpuledger.manifest_fit.fit_report import FitReport, PodFit


def test_sentence_about_claims_is_wrapped_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    pod = PodFit("p", False, [], [], claims=("small", "large"))
    report = FitReport(1, "team", False, True, "Allowed", [pod])
    fit._show(report, Format.TABLE, cards=False)
    shown = capsys.readouterr().err
    assert "claims (small, large)" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 60
