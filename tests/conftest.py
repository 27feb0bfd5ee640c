"""Shared by all tests: the property-test profile, and what tests do not take from the machine."""

import os
import signal

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
    for name in [one for one in os.environ if one.startswith("GPULEDGER_")]:
        del os.environ[name]
