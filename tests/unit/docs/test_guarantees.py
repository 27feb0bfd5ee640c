"""The README and the guarantees claim nothing without the test that they name."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
GUARANTEES = ROOT / "docs" / "guarantees.md"
PROOF = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")
PROOFS = [
    (page, *proof) for page in (README, GUARANTEES) for proof in PROOF.findall(page.read_text())
]

README_BYTES_MAX = 9_000
FIRST_SCREEN_LINES_MAX = 45


@pytest.mark.parametrize(("page", "name", "path"), PROOFS)
def test_named_proof_is_defined_in_the_linked_file(page: Path, name: str, path: str) -> None:
    assert f"def {name}(" in (page.parent / path).read_text()


def test_every_guarantee_names_its_tests() -> None:
    table = GUARANTEES.read_text().partition("| promise | proved by |")[2].partition("\n\n")[0]
    promises = table.splitlines()[2:]
    assert len(promises) > 10
    assert all("[`test_" in line for line in promises)


def test_readme_names_four_guarantees_on_its_first_screen() -> None:
    screen = README.read_text().partition("\n[Guarantees]")[0].splitlines()
    bullets = [line for line in screen if line.startswith("* **")]
    assert len(screen) <= FIRST_SCREEN_LINES_MAX
    assert len(bullets) == 4
    assert all(PROOF.search(line) for line in bullets)


def test_readme_stays_short() -> None:
    assert len(README.read_bytes()) <= README_BYTES_MAX


def test_readme_shows_what_the_tutorial_shows() -> None:
    """The tutorial has the transcript that the integration test of the demo compares."""
    shown = README.read_text().partition("```console\n")[2].partition("```")[0]
    tutorial = " ".join((ROOT / "docs" / "tutorial.md").read_text().split())
    steps = re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]
    assert len(steps) == 2
    assert [step for step in steps if " ".join(step.split()) not in tutorial] == []


@pytest.mark.parametrize("target", ["demo", "test", "bench", "setup"])
def test_make_target_of_the_readme_exists(target: str) -> None:
    assert f"make {target}" in README.read_text()
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
