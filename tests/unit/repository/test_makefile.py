"""The commands that `make` runs match its help."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def commands_of(target: str) -> list[str]:
    """Return the commands that a target would run."""
    asked = ["make", "--dry-run", "--no-print-directory", target]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_e2e_long_runs_tests_marked_long_and_properties_at_length() -> None:
    runs = [command for command in commands_of("e2e-long") if "/pytest " in command]
    assert any(" -m long" in run for run in runs)
    # No property is marked long: each runs in `make test`, too, with fewer examples.
    whole = [run for run in runs if " -m " not in run and " tests/properties" in run]
    assert any(run.startswith("HYPOTHESIS_PROFILE=long ") for run in whole)


@pytest.mark.parametrize("target", ["test", "e2e"])
def test_only_e2e_install_runs_tests_marked_install(target: str) -> None:
    runs = [command for command in commands_of(target) if " tests/e2e " in command]
    assert runs
    assert all("not install" in run for run in runs)
    for entering in ("e2e-install", "e2e-node", "e2e-node-short", "e2e-node-long"):
        (entered,) = [run for run in commands_of(entering) if "/pytest " in run]
        assert "tests.e2e.install.enter" in entered


def test_the_demo_installs_no_tools_of_developers(tmp_path: Path) -> None:
    """In a fresh clone it installs what the image has, without tests and linters."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for folder in ("deploy/locks", "gpuledger"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("deploy/locks/service.lock", "gpuledger/version.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    asked = ["make", "--dry-run", "--no-print-directory", "demo"]
    done = subprocess.run(
        asked, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    installs = [line for line in done.stdout.splitlines() if "install" in line]
    assert len(installs) == 1
    assert installs[0].endswith("tools/install.py .venv deploy/locks/service.lock")
    locked = (ROOT / "deploy" / "locks" / "service.lock").read_text()
    assert all(f"\n{tool}==" not in locked for tool in ("pytest", "ruff", "mypy", "hypothesis"))
