"""The commands that `make` runs match its help."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RIG = """#!{python}
import os, sys, time
words = " ".join(sys.argv)
part = next((part for part in ("install -m", "real_node -m") if part in words), "build")
print(part, "runs", flush=True)
if os.environ.get("STAYS") and part != "build":
    open(part, "w").write(str(os.getpid()))
    time.sleep(60)
sys.exit(part in os.environ.get("FAILS", ""))
"""
"""A rig that fails or stays as its environment asks, and writes its process id if it stays."""


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


@pytest.fixture
def rigs(tmp_path: Path) -> list[str]:
    """Return the command that runs two rigs which are played."""
    (tmp_path / "python").write_text(RIG.format(python=sys.executable))
    (tmp_path / "python").chmod(0o755)
    makefile = str(ROOT / "Makefile")
    return ["make", "-s", "-f", makefile, "-o", "native", "e2e-rigs", f"BIN={tmp_path}"]


@pytest.mark.parametrize("fails", ["", "install -m", "real_node -m"])
def test_both_rigs_run_and_the_failure_of_either_counts(
    tmp_path: Path, rigs: list[str], fails: str
) -> None:
    done = subprocess.run(
        rigs,
        cwd=tmp_path,
        env={"FAILS": fails},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert {"install -m runs", "real_node -m runs"} <= set(done.stdout.splitlines())
    assert (done.returncode != 0) == bool(fails)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_no_rig_outlives_an_interrupted_make(tmp_path: Path, rigs: list[str], sent: int) -> None:
    files = [tmp_path / "install -m", tmp_path / "real_node -m"]
    stays = {"STAYS": "1"}
    with subprocess.Popen(rigs, cwd=tmp_path, env=stays, start_new_session=True) as make:
        pids = [_pid_in(file) for file in files]
        # A terminal interrupts all processes of its group, and a service ends make alone.
        send = os.killpg if sent == signal.SIGINT else os.kill
        send(make.pid, sent)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "a rig runs on"
        time.sleep(0.02)


def _pid_in(file: Path) -> str:
    deadline = time.monotonic() + 30
    while not file.exists() or not file.read_text():
        assert time.monotonic() < deadline, f"{file.name} did not begin"
        time.sleep(0.02)
    return file.read_text()


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
