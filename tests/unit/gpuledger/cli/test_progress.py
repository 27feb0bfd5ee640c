"""The bar of long work."""

import pytest

from gpuledger.cli.progress import bar, ignore


@pytest.mark.parametrize(("kind", "shown"), [("dumb", False), ("xterm", True)])
def test_a_terminal_that_cannot_be_redrawn_has_no_bar(
    kind: str, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", kind)
    with bar("work") as progress:
        assert (progress is not ignore) is shown
    assert shown or capsys.readouterr().err == ""
