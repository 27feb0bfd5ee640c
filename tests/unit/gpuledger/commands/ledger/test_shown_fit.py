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


@pytest.mark.parametrize(
    ("offered", "total", "said"),
    [
        (None, 3, "Cards in ResourceSlices are not left out here: only a service"),
        (None, 0, ""),
        (0, 3, ""),
        (1, 3, "1 card is left out: ResourceSlices have them"),
        (8, 3, "8 cards are left out: ResourceSlices have them"),
        (8, 0, ""),
    ],
)
def test_sentence_about_cards_in_slices_follows_the_nodes(
    capsys: pytest.CaptureFixture[str], offered: int | None, total: int, said: str
) -> None:
    pod = PodFit("p", True, [], [], fitting=total, total=total)
    report = FitReport(1, "team", True, True, "Allowed", [pod], offered_by_dra=offered)
    fit._show(report, Format.TABLE, cards=False)
    shown = capsys.readouterr().err
    assert said in shown
    assert ("ResourceSlices" in shown) == bool(said)
