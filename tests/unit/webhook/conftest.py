"""These tests wait on timers alone, so that none of them has to wait."""

from collections.abc import Callable, Mapping

from support.harness.skipped_time import SkippingLoop, factories


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], SkippingLoop]]:
    """Run the tests of this folder on a clock that jumps."""
    return factories()
