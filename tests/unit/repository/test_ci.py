"""`.ci/run` runs a test that fails once more, and lists which tests that were."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

SCRIPT = Path(__file__).parents[3] / ".ci" / "run"
SUITE = """
from pathlib import Path

def test_steady():
    pass

def test_unsteady():
    mark = Path(__file__).with_suffix(".tried")
    tried, _ = mark.exists(), mark.touch()
    assert tried
"""
BROKEN = """
def test_broken():
    assert False, "because"

def test_unsteady_and_broken():
    assert False
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadfile")], ids=["one", "several"])
@pytest.mark.parametrize("broken", [False, True], ids=["", "broken"])
def test_a_test_that_fails_is_run_again_and_listed(
    broken: bool, workers: tuple[str, ...], tmp_path: Path
) -> None:
    done = run_with(tmp_path, SUITE + BROKEN * broken, workers)
    assert (done.returncode == 0) is not broken, done.stdout
    listed = [line.split() for line in done.stdout.splitlines() if line.startswith("!!!   ")]
    expected = [["!!!", "passed", "the", "second", "time:", "test_suite.py::test_unsteady"]]
    if broken:
        failing = ["!!!", "failed", "twice:"]
        expected.insert(0, [*failing, "test_suite.py::test_broken"])
        expected.append([*failing, "test_suite.py::test_unsteady_and_broken"])
    assert listed == expected, done.stdout


def test_nothing_is_listed_where_everything_passes_at_once(tmp_path: Path) -> None:
    done = run_with(tmp_path, "def test_steady():\n    pass\n", ())
    assert done.returncode == 0
    assert "!!!" not in done.stdout


def test_a_finding_of_the_lint_fails_the_run(tmp_path: Path) -> None:
    done = run_with(tmp_path, "def test_steady():\n    pass\n", (), lint="echo unsorted; exit 3")
    assert done.returncode != 0
    assert "unsorted" in done.stdout


def test_tests_beside_the_rigs_fail_the_run(tmp_path: Path) -> None:
    failing = "echo FAILED apart.py::test_it; exit 1"
    done = run_with(tmp_path, "def test_steady():\n    pass\n", (), apart=failing)
    assert done.returncode != 0
    assert "apart.py::test_it" in done.stdout


@pytest.mark.parametrize("given", ["", "long"])
def test_property_tests_draw_fixed_examples_unless_a_profile_is_given(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYPOTHESIS_PROFILE", given)
    profile = given or "ci"
    suite = (
        f"import os\n\ndef test_it():\n    assert os.environ['HYPOTHESIS_PROFILE'] == {profile!r}\n"
    )
    done = run_with(tmp_path, suite, ())
    assert done.returncode == 0, done.stdout
    assert settings.get_profile("ci").derandomize


def test_tools_that_cannot_be_installed_are_named(tmp_path: Path) -> None:
    """A user without root, on whose path is nothing but the shell."""
    for name, text in {"id": "echo 1000", "bash": 'exec /bin/bash "$@"'}.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/bash\n{text}\n")
        program.chmod(0o755)
    done = subprocess.run(
        [SCRIPT.with_name("tools")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0
    assert "!!! NOT INSTALLED: iproute2 nftables dnsmasq-base" in done.stderr
    assert "not root" in done.stderr


def run_with(
    folder: Path, suite: str, workers: tuple[str, ...], *, lint: str = "true", apart: str = "true"
) -> subprocess.CompletedProcess[str]:
    """Run the script with programs as `make lint` and `make test-apart`, a suite as `make test`."""
    (folder / ".ci").mkdir()
    (folder / "test_suite.py").write_text(suite)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -ra\n")
    command = " ".join([sys.executable, "-m", "pytest", "-q", *workers])
    (folder / "Makefile").write_text(
        f"setup e2e-rigs:\n\t@true\n\nlint:\n\t{lint}\n\n"
        f"test-apart:\n\t{apart}\n\ntest:\n\t{command}\n"
    )
    script = shutil.copy(SCRIPT, folder / ".ci" / "run")
    env = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [script], env=env, capture_output=True, text=True, check=False, timeout=120
    )
