"""Inventory: the node's cards and their health, as NVML reports them.

A card is ill after the driver reports an error that no program can cause, and while NVML does not
answer for it. After an error a card stays ill until the agent restarts, because the agent cannot
observe its repair. A card that answers again is healthy again. A card that NVML no longer lists is
kept as ill, because pods may hold it.
"""

import asyncio
from typing import Final

import structlog

from ledger.core.model.cards import Card
from ledger.kube.hami.link_scores import PairScores
from vgpu_native.agent.card_announcement import CardOffer, cards_of
from vgpu_native.nvml.nvml_port import Gpu, NvmlDriver, NvmlError, Xid
from vgpu_native.shared.change_counter import ChangeCounter

LISTEN_SECONDS: Final = 1.0
"""Longest single wait for errors, so that the agent can end."""

LOOK_SECONDS: Final = 5.0
"""Interval between two readings of the list of cards."""

OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Errors that a program causes and that end it: illegal addresses, its end, page faults."""

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class CardInventory:
    """The node's cards; `changes` counts changes of the cards and of their health.

    `trouble` is the reason why the cards are unknown now, empty without a problem.
    """

    def __init__(self, driver: NvmlDriver, offer: CardOffer) -> None:
        """Begin without cards; `run` reads them."""
        self.changes = ChangeCounter()
        self.trouble = "NVML has not been asked yet"
        self.ill: dict[str, str] = {}
        self.xids: dict[tuple[str, int], int] = {}
        self.scores: PairScores = {}
        self._driver, self._offer = driver, offer
        self._gpus: dict[str, Gpu] = {}
        self._failed: dict[str, str] = {}
        self._silent: dict[str, str] = {}
        self._cards: tuple[Card, ...] | None = None

    @property
    def known(self) -> bool:
        """Whether NVML has listed the cards once."""
        return self._cards is not None

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The cards as NVML reports them."""
        return tuple(self._gpus.values())

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards that can be shared, in the order of their indexes."""
        return self._cards or ()

    async def run(self) -> None:
        """Read cards and errors until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_looking())
            tasks.create_task(self._keep_listening())

    async def look(self) -> None:
        """Read from NVML which cards there are and whether each answers."""
        try:
            gpus = await self._driver.ask(self._driver.nvml.gpus)
        except NvmlError as error:
            self._report(str(error))
            self._silent = {uuid: str(error) for uuid in self._gpus}
        else:
            self._report("" if gpus else "NVML lists no cards")
            await self._take(gpus)
        self._settle()

    def hear(self, xid: Xid) -> None:
        """Apply an error that the driver reports; without a known card it applies to all."""
        uuids = [xid.uuid] if xid.uuid in self._gpus else list(self._gpus)
        for uuid in uuids:
            self.xids[uuid, xid.number] = self.xids.get((uuid, xid.number), 0) + 1
        if xid.number in OF_PROGRAMS:
            return
        for uuid in uuids:
            self._failed.setdefault(uuid, f"XID {xid.number}")
        self._settle()

    async def _take(self, gpus: tuple[Gpu, ...]) -> None:
        if {one.uuid for one in gpus} != self._gpus.keys():
            await self._look_at_links()
        for one in gpus:
            if one.cut and one.uuid not in self._gpus:
                _log.warning("card_in_mig_mode", uuid=one.uuid, reason="it is not offered")
        listed = {one.uuid for one in gpus}
        self._gpus |= {one.uuid: one for one in gpus}
        self._silent = dict.fromkeys(self._gpus.keys() - listed, "NVML lists it no more")
        for uuid in listed:
            try:
                await self._driver.ask(self._driver.nvml.load, uuid)
            except NvmlError as error:
                self._silent[uuid] = str(error)

    async def _look_at_links(self) -> None:
        try:
            self.scores = await self._driver.ask(self._driver.nvml.scores)
        except NvmlError as error:
            _log.warning("links_unknown", reason=str(error))

    def _settle(self) -> None:
        """Compute the cards and their health, and count a change of either."""
        ill = {**self._silent, **self._failed}
        for uuid in ill.keys() - self.ill.keys():
            _log.error("card_ill", uuid=uuid, reason=ill[uuid])
        for uuid in self.ill.keys() - ill.keys():
            _log.info("card_well", uuid=uuid)
        self.ill = ill
        if not self._gpus and self.trouble:
            return
        cards = cards_of(self._gpus.values(), self._offer, ill)
        if cards != self._cards:
            self._cards = cards
            self.changes.increment()

    def _report(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            _log.error("cards_unknown", reason=trouble)
        self.trouble = trouble

    async def _keep_looking(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _keep_listening(self) -> None:
        """Wait for errors; where NVML cannot report them, its list of cards has to do."""
        told = ""
        while True:
            try:
                xid = await self._driver.xid(LISTEN_SECONDS)
            except NvmlError as error:
                if str(error) != told:
                    told = str(error)
                    _log.warning("errors_not_heard", reason=told)
                await asyncio.sleep(LOOK_SECONDS)
                continue
            if xid is not None:
                _log.warning("xid", uuid=xid.uuid, number=xid.number)
                self.hear(xid)
