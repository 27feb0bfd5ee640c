"""A tree of planted files for the tests of the lint."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Plant = Callable[[dict[str, str]], Path]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Write files into a new repository and return its root."""

    def write(files: dict[str, str]) -> Path:
        subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=30)
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path

    return write
