"""Defects are planted in copies of the C sources, by patches, and never in the sources."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from native.harness.builds import NATIVE

MUTANTS = NATIVE / "tests" / "mutants"
PATCHES = {path.stem: path for path in sorted(MUTANTS.rglob("*.patch"))}
TESTS = Path(__file__).parents[1]


def apply(patch: Path, output: Path) -> subprocess.CompletedProcess[str]:
    """Run the tool that copies the sources with a patch applied."""
    command: list[str | Path] = [
        sys.executable,
        MUTANTS / "apply.py",
        patch,
        NATIVE / "src",
        output,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", PATCHES)
def test_a_mutant_differs_from_the_sources_in_the_files_of_its_patch(
    name: str, tmp_path: Path
) -> None:
    patch = PATCHES[name]
    done = apply(patch, tmp_path / "src")
    assert done.returncode == 0, done.stderr
    changed = {
        str(path.relative_to(tmp_path / "src"))
        for path in (tmp_path / "src").rglob("*.[chS]")
        if path.read_bytes() != (NATIVE / "src" / path.relative_to(tmp_path / "src")).read_bytes()
    }
    assert changed == set(re.findall(r"^\+\+\+ b/(.*)$", patch.read_text(), re.MULTILINE)) != set()


def test_every_mutant_is_named_by_a_test() -> None:
    texts = [path.read_text() for path in TESTS.rglob("test_*.py")]
    assert [name for name in PATCHES if not any(f'"{name}"' in text for text in texts)] == []
    assert len(PATCHES) >= 30
    assert len(PATCHES) == len(list(MUTANTS.rglob("*.patch"))), "two patches have one name"


def test_a_patch_that_no_longer_applies_names_the_lines(tmp_path: Path) -> None:
    patch = tmp_path / "stale.patch"
    text = (MUTANTS / "dead_count.patch").read_text()
    patch.write_text(text.replace("uint64_t used =", "uint64_t bytes ="))
    done = apply(patch, tmp_path / "src")
    assert done.returncode != 0
    assert "stale.patch no longer applies" in done.stderr
    assert "core/memory_limit.c has these lines 0 times, not once" in done.stderr
    assert "uint64_t bytes =" in done.stderr


def test_the_sources_hold_no_planted_defect() -> None:
    paths = [*(NATIVE / "src").rglob("*.[chS]"), *(NATIVE / "include").glob("*.h")]
    assert [path for path in paths if re.search(r"BREAK_|MUTANT", path.read_text())] == []
