"""Beside: what else the active replica settles, from the same watch of pods and by the same way."""

from collections.abc import Callable
from typing import Protocol

from ledger.kube.api.objects import Pod
from ledger.kube.api.ports import Change
from ledger.log.command_queue import CommandQueue


class PodListener(Protocol):
    """Something that is settled for as long as this replica is the active one."""

    async def run(self) -> None:
        """Settle until cancelled."""
        ...

    async def take(self, change: Change[Pod]) -> None:
        """Take in what the watch of pods tells, after the ledger was told of it."""
        ...


StartListener = Callable[[CommandQueue], PodListener]
"""Begins a tenure: commands are sent by the courier, in order with those about quotas."""
