"""The image is made of what is locked, and of everything that belongs to it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from gpuledger.version import VERSION

ROOT: Final = Path(__file__).parents[3]
DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINT_SECONDS: Final = 60.0


def stages() -> dict[str, list[str]]:
    """Return the instructions of each stage of the Dockerfile, by its name."""
    text = DOCKERFILE.read_text().replace("\\\n", "")
    parts = re.split(r"^(?=FROM )", text, flags=re.MULTILINE)[1:]
    return {part.splitlines()[0].split()[-1]: part.splitlines() for part in parts}


STAGES: Final = stages()


def locked(path: str) -> dict[str, set[str]]:
    """Return the hashes of every pinned package, `name==version`."""
    text = (ROOT / path).read_text().replace("\\\n", "")
    pins = (line.split() for line in text.splitlines())
    return {pin: {word for word in words if word.startswith("--hash=")} for pin, *words in pins}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~!; ]", requirement)[0] for requirement in requirements}


RUNS: Final = locked("deploy/locks/service.lock")
NODE: Final = locked("deploy/locks/node.lock")
BUILD: Final = locked("deploy/locks/build.lock")
TESTED: Final = locked("requirements.lock")


@pytest.mark.parametrize("lock", [RUNS, NODE, BUILD], ids=["service", "node", "build"])
def test_packages_of_the_images_are_those_of_the_tests(lock: dict[str, set[str]]) -> None:
    assert lock.keys() <= TESTED.keys()
    assert all(hashes and hashes == TESTED[pin] for pin, hashes in lock.items())


def test_every_dependency_is_locked() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    assert names(project["dependencies"]) <= names(list(RUNS))
    assert names(extras["node"]) <= names(list(NODE))
    assert names(extras["dev"]) <= names(list(TESTED))


def test_tools_are_not_in_the_images() -> None:
    tools = names(PROJECT["project"]["optional-dependencies"]["dev"])
    assert tools & names([*RUNS, *NODE]) == set()


def test_packages_of_the_node_are_only_in_the_agent() -> None:
    node = names(PROJECT["project"]["optional-dependencies"]["node"])
    assert node & names(list(RUNS)) == set()


def test_every_package_is_sent_to_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    packages = {
        pattern.rstrip("*")
        for pattern in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    wanted = packages | {"pyproject.toml", PROJECT["project"]["readme"], "deploy/locks"}
    assert ignored[1] == "*"
    assert {f"!{path}" for path in (*wanted, *PROJECT["project"]["license-files"])} <= set(ignored)


@pytest.mark.parametrize("stage", ["service", "nats"])
def test_images_run_as_an_unprivileged_user(stage: str) -> None:
    instructions = STAGES[stage]
    assert [line for line in instructions if line.startswith("USER ")] == ["USER 65532:65532"]
    assert not any(line.startswith("RUN ") for line in instructions)


def test_the_agent_is_the_service_with_the_parts_of_the_node() -> None:
    assert STAGES["agent"][0] == "FROM service AS agent"
    assert not any(line.startswith(("USER ", "ENTRYPOINT ")) for line in STAGES["agent"])


def test_the_dockerfile_has_the_version_of_the_packages() -> None:
    assert {
        line for line in DOCKERFILE.read_text().splitlines() if line.startswith("ARG VERSION")
    } == {f"ARG VERSION={VERSION}"}


def hadolint(dockerfile: Path) -> subprocess.CompletedProcess[str]:
    linter = Path(sys.executable).with_name("hadolint")
    return subprocess.run(
        [linter, dockerfile], capture_output=True, text=True, timeout=LINT_SECONDS, check=False
    )


def test_the_dockerfile_has_no_findings() -> None:
    done = hadolint(DOCKERFILE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("line", "fault", "rule"),
    [
        ("FROM ${BUILD_BASE} AS tools", "FROM python:latest AS tools", "DL3007"),
        ("USER 65532:65532", "USER root", "DL3002"),
    ],
)
def test_a_fault_in_the_dockerfile_is_a_finding(
    line: str, fault: str, rule: str, tmp_path: Path
) -> None:
    text = DOCKERFILE.read_text()
    assert line in text
    (tmp_path / "Dockerfile").write_text(text.replace(line, fault))
    done = hadolint(tmp_path / "Dockerfile")
    assert done.returncode != 0
    assert rule in done.stdout
