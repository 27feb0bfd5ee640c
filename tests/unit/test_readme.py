"""The README claims nothing without the test that it names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROOFS = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", README)


@pytest.mark.parametrize(("name", "path"), PROOFS)
def test_a_named_test_is_where_the_readme_says(name: str, path: str) -> None:
    assert f"def {name}(" in (ROOT / path).read_text()


def test_every_promise_names_its_tests() -> None:
    table = README.partition("| promise | proved by |")[2].partition("\n\n")[0]
    promises = table.splitlines()[2:]
    assert len(promises) > 10
    assert all("[`test_" in line for line in promises)


@pytest.mark.parametrize("target", ["demo", "test", "bench", "setup"])
def test_a_named_target_of_make_exists(target: str) -> None:
    assert f"make {target}" in README
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
