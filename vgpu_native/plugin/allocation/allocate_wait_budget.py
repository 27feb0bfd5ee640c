"""Patience: how long the kubelet is kept waiting for a container that nobody knows yet.

A kubelet that waits for `Allocate` acts on no pod of the node, and a pod that it is refused fails
for good. So an answer waits for the ledger, but not for long, and pods in a row share the time.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from vgpu_native.plugin.placement_source import PlacementSource
from vgpu_native.plugin.plugin_settings import PluginSettings

ROW_SECONDS: Final = 1.0
"""Calls that wait are in a row when the kubelet does not pause longer between them."""

LEAST_SECONDS: Final = 1.0
"""How long each call may wait, however long those before it did."""


class WaitingCall:
    """One call that waits. All times are those of the patience's clock."""

    def __init__(self, settings: PluginSettings, now: Callable[[], float], *, until: float) -> None:
        """Wait until then at most, unless all is known before."""
        self._settings, self._now = settings, now
        self._until = until
        self._known_at: float | None = None

    def know(self) -> None:
        """Take note that all is known that the ledger held when the call began to wait."""
        self._known_at = self._now()

    @property
    def known(self) -> bool:
        """Whether all is known that the ledger held when the call began to wait."""
        return self._known_at is not None

    @property
    def again(self) -> bool:
        """Whether those may be meant who have answers: a kubelet that lost its checkpoint asks."""
        return self._has_passed(self._settings.allocate_seconds / 2)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self._has_passed(self._settings.allocate_seconds) or (
            not self.known and self._now() >= self._until
        )

    def _has_passed(self, seconds: float) -> bool:
        return self._known_at is not None and self._now() - self._known_at >= seconds


class AllocateWaitBudget:
    """Of all calls of one kubelet."""

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
        """For how long the kubelet has been waiting; 0 while it does not."""
        return self._now() - self._began if self._calls else 0.0

    @contextmanager
    def waiting(self) -> Iterator[WaitingCall]:
        """Wait in a block; leaving it hands control to nobody else."""
        now = self._now()
        if not self._calls and now - self._ended > ROW_SECONDS:
            self._began = now
        until = max(self._began + self._settings.outage_seconds, now + LEAST_SECONDS)
        call = WaitingCall(self._settings, self._now, until=until)
        knowing = asyncio.create_task(self._know(call))
        self._calls += 1
        try:
            yield call
        finally:
            self._calls -= 1
            self._ended = self._now()
            knowing.cancel()

    async def _know(self, call: WaitingCall) -> None:
        await self._placements.caught_up()
        call.know()
