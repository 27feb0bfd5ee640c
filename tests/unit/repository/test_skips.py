"""The summary of a test run has one line for each reason to skip tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[2] / "conftest.py"
SUITE = """
import pytest

@pytest.fixture
def cluster():
    pytest.skip("no control plane")

@pytest.mark.parametrize("number", range(3))
def test_on_a_cluster(cluster, number): ...

def test_on_the_same_cluster(cluster): ...

@pytest.mark.skip(reason="no compiler")
def test_with_a_compiler(): ...

def test_that_runs(): ...

@pytest.mark.xfail(strict=True, reason="because")
def test_that_fails(): assert False
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one", "several"])
def test_skips_of_one_reason_are_one_line(workers: tuple[str, ...], tmp_path: Path) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "e2e").mkdir()
    (tmp_path / "e2e" / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *workers],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("SKIPPED")) == [
        "SKIPPED [1] e2e: no compiler",
        "SKIPPED [4] e2e: no control plane",
    ]
    assert "1 passed, 5 skipped, 1 xfailed" in done.stdout
