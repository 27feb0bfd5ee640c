"""Shared by all tests: profiles of property tests, the environment, and the report of skips."""

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A shell starts background jobs with SIGINT ignored, and each process of a test would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("long", settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_machine() -> None:
    """Remove the settings of the machine, before anything is started.

    A test that needs such a variable for itself reads it when it is imported.
    """
    for name in [variable for variable in os.environ if variable.startswith("GPULEDGER_")]:
        del os.environ[name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, pytest.TestReport]:
    """Report tests of one folder that are skipped for one reason as one line, with a number."""
    report: pytest.TestReport = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        _file, _line, reason = report.longrepr
        report.longrepr = (_suite_of(item), None, reason)  # type: ignore[assignment]
    return report


def _suite_of(item: pytest.Item) -> str:
    """Return the folder below the folder of this file that a test belongs to."""
    inside = item.path.relative_to(Path(__file__).parent).parts
    return str(Path(__file__).with_name(inside[0]))
