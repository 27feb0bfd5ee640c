"""Node annotator: keeps the annotations of the Node equal to its cards and their health."""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from ledger.kube.api.cluster_errors import ClusterError, VersionConflict
from ledger.kube.api.objects import ApiNode
from ledger.kube.hami import annotation_keys
from vgpu_native.agent.cards.card_announcement import (
    AnnouncementForm,
    CardOffer,
    annotations,
    answer,
    changes,
)
from vgpu_native.agent.cards.card_inventory import CardInventory

LOOK_SECONDS: Final = 30.0
"""Longest time between two readings of the Node, because other programs write annotations, too."""

RETRY_SECONDS: Final = 2.0
CONFLICT_SECONDS: Final = 0.2

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class NodeWrites(Protocol):
    """The calls that the annotator needs; each has a deadline and may raise ClusterError."""

    async def get_node(self, name: str) -> ApiNode | None:
        """Read a node; None when it does not exist."""
        ...

    async def patch_node_annotations(
        self, name: str, changes: dict[str, str | None], version: str = ""
    ) -> None:
        """Set annotations of a node, and remove those that are None."""
        ...


class NodeAnnotator:
    """Announces the cards of an inventory; `trouble` is the reason if the Node is out of date."""

    def __init__(
        self,
        cluster: NodeWrites,
        node: str,
        *,
        inventory: CardInventory,
        offer: CardOffer,
        form: AnnouncementForm,
    ) -> None:
        """Write to the Node of this name."""
        self.trouble = "the cards have not been announced yet"
        self._cluster, self._node = cluster, node
        self._inventory, self._offer, self._form = inventory, offer, form

    async def run(self) -> None:
        """Announce until cancelled: at each change of the cards, and at intervals."""
        while True:
            version = self._inventory.changes.version
            pause = await self._attempt()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._inventory.changes.wait(version)

    async def announce(self) -> bool:
        """Write the annotations that the Node lacks; return whether there were any.

        Raises ClusterError. Nothing is written before the cards are known.
        """
        if not self._inventory.known:
            self.trouble = "the node's cards are not known yet"
            return False
        node = await self._cluster.get_node(self._node)
        if node is None:
            self.trouble = (
                f"there is no Node {self._node}: give the agent its node's name (--node, NODE_NAME)"
            )
            return False
        present = node.metadata.annotations or {}
        wanted = annotations(self._inventory.cards, self._inventory.scores, self._offer, self._form)
        reply = answer(present.get(annotation_keys.HANDSHAKE), datetime.now(UTC))
        missing = changes(wanted | ({annotation_keys.HANDSHAKE: reply} if reply else {}), present)
        if missing:
            version = node.metadata.resource_version
            await self._cluster.patch_node_annotations(self._node, missing, version)
        self.trouble = ""
        return bool(missing)

    async def _attempt(self) -> float:
        """Announce once; return after how many seconds to look again."""
        try:
            if await self.announce():
                _log.info("cards_announced", node=self._node, cards=len(self._inventory.cards))
        except VersionConflict:
            return CONFLICT_SECONDS
        except (ClusterError, TimeoutError) as error:
            reason = str(error) or "the API server does not answer in time"
            if reason != self.trouble:
                _log.warning("cards_not_announced", node=self._node, reason=reason)
            self.trouble = reason
        return LOOK_SECONDS if not self.trouble else RETRY_SECONDS
