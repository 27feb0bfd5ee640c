"""The pages show the real output of their commands."""

from pathlib import Path

import pytest
from support.recorded.transcripts import DOCS, run, same, steps_of

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("page", ["tutorial.md", "reference/http-api.md"])
def test_a_page_shows_the_real_output(page: str, tmp_path: Path) -> None:
    steps = steps_of((DOCS / page).read_text())
    assert len(steps) > 5
    for step, actual in zip(steps, run([step.command for step in steps], tmp_path), strict=True):
        assert same(actual.printed) == same(step.printed), step.command
