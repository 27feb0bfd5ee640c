"""What `make` runs is what its help says."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def commands_of(target: str) -> list[str]:
    """Return what a target would run."""
    asked = ["make", "--dry-run", "--no-print-directory", target]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_the_long_campaigns_are_everything_marked_long_and_the_properties_at_length() -> None:
    runs = [one for one in commands_of("e2e-long") if "/pytest " in one]
    assert any(" -m long" in one for one in runs)
    # No property is marked long: each runs in `make test`, too, with fewer examples.
    whole = [one for one in runs if " -m " not in one and " tests/properties" in one]
    assert any(one.startswith("HYPOTHESIS_PROFILE=long ") for one in whole)


def test_the_demo_installs_no_tools_of_developers(tmp_path: Path) -> None:
    """In a fresh clone it installs what the image has, without tests and linters."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for folder in ("deploy", "gpuledger"):
        (tmp_path / folder).mkdir()
    for name in ("deploy/requirements.lock", "gpuledger/version.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    asked = ["make", "--dry-run", "--no-print-directory", "demo"]
    done = subprocess.run(
        asked, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    installs = [line for line in done.stdout.splitlines() if "install" in line]
    assert len(installs) == 1
    assert installs[0].endswith("tools/install.py .venv deploy/requirements.lock")
    locked = (ROOT / "deploy" / "requirements.lock").read_text()
    assert all(f"\n{tool}==" not in locked for tool in ("pytest", "ruff", "mypy", "hypothesis"))
