"""Tests are type-checked: mypy finds planted mistakes in them with the repository's settings."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SECONDS = 120

CALLED = """
def limit_of(name: str) -> int:
    return len(name)
"""
MISTAKES = {
    "arg-type": "def test_a_limit() -> None:\n    assert limit_of(1) == 1\n",
    "call-arg": "def test_a_limit():\n    assert limit_of('a', 'b') == 1\n",
    "assignment": "def limit(name: str = None) -> None: ...\n",
    "attr-defined": "def test_a_limit():\n    assert limit_of('a').real_part\n",
    "unused-ignore": "def test_a_limit():\n    assert limit_of('a')  # type: ignore\n",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mypy_finds_a_mistake_planted_in_a_test(mistake: str, tmp_path: Path) -> None:
    done = checked(tmp_path, MISTAKES[mistake])
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"[{mistake}]" in done.stdout


def test_mypy_accepts_a_test_without_annotations(tmp_path: Path) -> None:
    done = checked(tmp_path, "def test_a_limit(fixture):\n    assert limit_of('a') == fixture\n")
    assert done.returncode == 0, done.stdout + done.stderr


def checked(folder: Path, test: str) -> subprocess.CompletedProcess[str]:
    """Check a planted test below `tests/unit` with the settings of this repository."""
    planted = folder / "tests" / "unit" / "test_planted.py"
    planted.parent.mkdir(parents=True)
    planted.write_text(CALLED + test)
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(folder / "cache")]
    return subprocess.run(
        [sys.executable, "-m", "mypy", *settings, "--package", "unit"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
