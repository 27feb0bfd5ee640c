"""Inventory loading: how long a request waits until the log is open and the cards are known."""

import asyncio
from collections.abc import Callable
from typing import Final

from extender.inventory.cluster_inventory import ClusterInventory
from extender.scheduler_api.extender_wire import ExtenderUnavailable

READY_SECONDS: Final = 5.0
"""How long a request waits for the log to be open."""

LOOK_SECONDS: Final = 0.1
"""Pause between two looks."""


async def until_loaded(inventory: ClusterInventory, clock: Callable[[], float]) -> None:
    """Wait until the cards are known. Raises ExtenderUnavailable."""
    until = clock() + READY_SECONDS
    while not inventory.loaded:
        left = until - clock()
        if left <= 0:
            raise ExtenderUnavailable(
                "the log is not open yet: the cards of the nodes are not known"
            )
        await asyncio.sleep(min(left, LOOK_SECONDS))
