"""The reference pages agree with the code."""

import subprocess
import sys
from pathlib import Path

GENERATOR = Path(__file__).parents[3] / "docs" / "generate.py"


def test_the_reference_pages_are_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, GENERATOR, "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
