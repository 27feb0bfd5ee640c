"""Allocate wait budget: how long `Allocate` waits for a placement that is not known yet.

The kubelet handles no pod of the node while it waits for `Allocate`, and a pod whose call is
rejected fails for good. So a call waits for the ledger within a bound, and consecutive calls share
one budget: `outage_seconds` of `PluginSettings`, 25 s by default.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from vgpu_native.plugin.placement_source import PlacementSource
from vgpu_native.plugin.plugin_settings import PluginSettings

ROW_SECONDS: Final = 1.0
"""Longest pause between two consecutive waiting calls."""

LEAST_SECONDS: Final = 1.0
"""How long each call may wait, even if earlier calls used up the budget."""


class WaitingCall:
    """One waiting call. All times are those of the wait budget's clock."""

    def __init__(self, settings: PluginSettings, now: Callable[[], float], *, until: float) -> None:
        """Wait for the ledger until `until` at most."""
        self._settings, self._now = settings, now
        self._until = until
        self._caught_up_at: float | None = None

    def mark_caught_up(self) -> None:
        """Record that all placements are read that the ledger held when the wait began."""
        self._caught_up_at = self._now()

    @property
    def caught_up(self) -> bool:
        """Whether all placements are read that the ledger held when the wait began."""
        return self._caught_up_at is not None

    @property
    def may_repeat(self) -> bool:
        """Whether the call may repeat an earlier one: a kubelet may have lost its checkpoint."""
        return self._has_passed(self._settings.allocate_seconds / 2)

    @property
    def is_over(self) -> bool:
        """Whether the call has waited long enough."""
        return self._has_passed(self._settings.allocate_seconds) or (
            not self.caught_up and self._now() >= self._until
        )

    def _has_passed(self, seconds: float) -> bool:
        return self._caught_up_at is not None and self._now() - self._caught_up_at >= seconds


class AllocateWaitBudget:
    """The shared wait budget of all calls of one kubelet."""

    def __init__(
        self,
        settings: PluginSettings,
        placements: PlacementSource,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wait for these placements; `now` in seconds."""
        self._settings, self._placements, self._now = settings, placements, now
        self._calls = 0
        self._began = self._ended = float("-inf")

    @property
    def seconds(self) -> float:
        """Seconds for which the kubelet has been waiting; 0 while it does not."""
        return self._now() - self._began if self._calls else 0.0

    @contextmanager
    def waiting(self) -> Iterator[WaitingCall]:
        """Count a waiting call for a block. Leaving the block awaits nothing."""
        now = self._now()
        if not self._calls and now - self._ended > ROW_SECONDS:
            self._began = now
        until = max(self._began + self._settings.outage_seconds, now + LEAST_SECONDS)
        call = WaitingCall(self._settings, self._now, until=until)
        catching_up = asyncio.create_task(self._catch_up(call))
        self._calls += 1
        try:
            yield call
        finally:
            self._calls -= 1
            self._ended = self._now()
            catching_up.cancel()

    async def _catch_up(self, call: WaitingCall) -> None:
        await self._placements.caught_up()
        call.mark_caught_up()
