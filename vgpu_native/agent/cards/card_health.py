"""Card health: which of the node's cards are unhealthy, and why.

A card is unhealthy after the driver reports a critical error (XID) that no program can cause, and
while NVML does not answer for it. After such an error a card stays unhealthy until the agent
restarts, because the agent cannot observe its repair. A card that answers again is healthy again. A
card that NVML no longer lists is kept as unhealthy, because pods may hold it.
"""

from collections.abc import Collection, Mapping
from typing import Final

import structlog

from vgpu_native.nvml.nvml_port import Xid

PROGRAM_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Errors that a program causes and that end it, such as illegal addresses and page faults."""

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class CardHealth:
    """The health of the node's cards by uuid.

    `unhealthy` has the reason of each unhealthy card, and `xids` counts errors by card and number.
    """

    def __init__(self) -> None:
        """Start without errors."""
        self.unhealthy: dict[str, str] = {}
        self.xids: dict[tuple[str, int], int] = {}
        self._failed: dict[str, str] = {}
        self._unanswered: dict[str, str] = {}

    def record_xid(self, xid: Xid, known: Collection[str]) -> None:
        """Apply an error that the driver reports; without a known card, to all `known`."""
        uuids = [xid.uuid] if xid.uuid in known else list(known)
        for uuid in uuids:
            self.xids[uuid, xid.number] = self.xids.get((uuid, xid.number), 0) + 1
        if xid.number in PROGRAM_XIDS:
            return
        for uuid in uuids:
            self._failed.setdefault(uuid, f"XID {xid.number}")
        self._update()

    def set_unanswered(self, reasons: Mapping[str, str]) -> None:
        """Set the cards for which NVML does not answer now, with the reasons."""
        self._unanswered = dict(reasons)
        self._update()

    def _update(self) -> None:
        """Compute the unhealthy cards, and log each change."""
        unhealthy = {**self._unanswered, **self._failed}
        for uuid in unhealthy.keys() - self.unhealthy.keys():
            _log.error("card_unhealthy", uuid=uuid, reason=unhealthy[uuid])
        for uuid in self.unhealthy.keys() - unhealthy.keys():
            _log.info("card_healthy", uuid=uuid)
        self.unhealthy = unhealthy
