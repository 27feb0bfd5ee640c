"""`tools/install.py` prints what is done every few seconds, and pip's own words where it fails."""

import importlib.util
import stat
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]

PIP = """#!{python}
import pathlib, sys, time
places = pathlib.Path({environment!r}, "lib/python3/site-packages")
places.mkdir(parents=True)
for name in ("one", "two"):
    print("Collecting " + name, flush=True)
    time.sleep(0.2)
print("Installing collected packages: one, two", flush=True)
(places / "one-1.dist-info").mkdir()
time.sleep(0.4)
sys.exit({status})
"""


def script() -> ModuleType:
    """Load the script, which is part of no package."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "tools" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment(folder: Path, status: int) -> tuple[Path, Path]:
    """Return an environment whose Python plays pip, and a lock file of two packages."""
    made, lock = folder / "environment", folder / "some.lock"
    python = made / "bin" / "python"
    python.parent.mkdir(parents=True)
    text = PIP.format(python=sys.executable, environment=str(made), status=status)
    python.write_text(text)
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    lock.write_text("one==1 \\\n    --hash=sha256:0\ntwo==2 \\\n    --hash=sha256:0\n")
    return made, lock


def test_lines_show_how_many_packages_are_fetched_and_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install = script()
    monkeypatch.setattr(install, "LINE_SECONDS", 0.05)
    made, lock = environment(tmp_path, 0)
    assert install.install(made, lock) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Installing the 2 packages of {lock} into {made}"
    assert any("of 2 packages fetched" in line for line in lines)
    assert any(line.endswith("all packages fetched, 1 of 2 installed") for line in lines)
    assert lines[-1].endswith(" s: installed")


def test_a_failure_shows_what_pip_printed_and_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script().install(*environment(tmp_path, 3)) == 3
    shown = capsys.readouterr()
    assert "Collecting one" in shown.err
    assert "installed\n" not in shown.out


def test_a_line_is_printed_at_least_every_few_seconds() -> None:
    assert script().LINE_SECONDS <= 5
