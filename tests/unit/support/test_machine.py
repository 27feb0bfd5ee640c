"""Settings of this product in the environment do not reach the tests' processes."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PRINTING = (
    "import os, signal;"
    "print([name for name in os.environ if name.startswith('GPULEDGER_')],"
    " signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
)

INNER = "test_processes_of_tests_have_no_outside_settings_and_take_interrupts"
IGNORING = (
    "import os, signal, sys;"
    "signal.signal(signal.SIGINT, signal.SIG_IGN);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def test_processes_of_tests_have_no_outside_settings_and_take_interrupts() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", PRINTING], capture_output=True, text=True, check=True, timeout=60
    )
    assert printed.stdout == "[] True\n"


def test_that_holds_for_tests_that_a_background_job_with_settings_starts() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"{__file__}::{INNER}",
    ]
    done = subprocess.run(
        [sys.executable, "-c", IGNORING, *command],
        cwd=ROOT,
        env=os.environ | {"GPULEDGER_NODE_ASSETS": "/assets"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
