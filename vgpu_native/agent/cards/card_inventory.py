"""Card inventory: the node's cards, as NVML lists them, with their health (`card_health.py`)."""

import asyncio
from typing import Final

import structlog

from ledger.core.model.cards import Card
from ledger.kube.hami.link_scores import PairScores
from vgpu_native.agent.cards.card_announcement import CardOffer, cards_of
from vgpu_native.agent.cards.card_health import CardHealth
from vgpu_native.nvml.nvml_port import Gpu, NvmlDriver, NvmlError, Xid
from vgpu_native.shared.change_counter import ChangeCounter

XID_WAIT_SECONDS: Final = 1.0
"""Longest single wait for errors of cards, so that the agent can end."""

LOOK_SECONDS: Final = 5.0
"""Interval between two readings of the list of cards."""

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class CardInventory:
    """The node's cards; `changes` counts changes of the cards and of their health.

    `trouble` is the reason why the cards are unknown now, empty without a problem.
    """

    def __init__(self, driver: NvmlDriver, offer: CardOffer) -> None:
        """Begin without cards; `run` reads them."""
        self.changes = ChangeCounter()
        self.trouble = "NVML has not been asked yet"
        self.health = CardHealth()
        self.scores: PairScores = {}
        self._driver, self._offer = driver, offer
        self._gpus: dict[str, Gpu] = {}
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
            tasks.create_task(self._look_repeatedly())
            tasks.create_task(self._wait_for_xids())

    async def look(self) -> None:
        """Read from NVML which cards there are and whether each answers."""
        try:
            gpus = await self._driver.ask(self._driver.nvml.gpus)
        except NvmlError as error:
            self._report(str(error))
            self.health.set_unanswered({uuid: str(error) for uuid in self._gpus})
        else:
            self._report("" if gpus else "NVML lists no cards")
            self.health.set_unanswered(await self._take(gpus))
        self._update_cards()

    def record_xid(self, xid: Xid) -> None:
        """Apply an error that the driver reports; without a known card it applies to all."""
        self.health.record_xid(xid, self._gpus)
        self._update_cards()

    async def _take(self, gpus: tuple[Gpu, ...]) -> dict[str, str]:
        """Take over the listed cards; return for which cards NVML does not answer, and why."""
        if {gpu.uuid for gpu in gpus} != self._gpus.keys():
            await self._read_links()
        for gpu in gpus:
            if gpu.cut and gpu.uuid not in self._gpus:
                _log.warning("card_in_mig_mode", uuid=gpu.uuid, reason="it is not offered")
        listed = {gpu.uuid for gpu in gpus}
        self._gpus |= {gpu.uuid: gpu for gpu in gpus}
        unanswered = dict.fromkeys(self._gpus.keys() - listed, "NVML lists it no more")
        for uuid in listed:
            try:
                await self._driver.ask(self._driver.nvml.load, uuid)
            except NvmlError as error:
                unanswered[uuid] = str(error)
        return unanswered

    async def _read_links(self) -> None:
        try:
            self.scores = await self._driver.ask(self._driver.nvml.scores)
        except NvmlError as error:
            _log.warning("links_unknown", reason=str(error))

    def _update_cards(self) -> None:
        """Compute the cards with their health, and count a change."""
        if not self._gpus and self.trouble:
            return
        cards = cards_of(self._gpus.values(), self._offer, self.health.unhealthy)
        if cards != self._cards:
            self._cards = cards
            self.changes.increment()

    def _report(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            _log.error("cards_unknown", reason=trouble)
        self.trouble = trouble

    async def _look_repeatedly(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _wait_for_xids(self) -> None:
        """Wait for errors; if NVML cannot report them, only its list of cards is read."""
        logged = ""
        while True:
            try:
                xid = await self._driver.xid(XID_WAIT_SECONDS)
            except NvmlError as error:
                if str(error) != logged:
                    logged = str(error)
                    _log.warning("xids_unavailable", reason=logged)
                await asyncio.sleep(LOOK_SECONDS)
                continue
            if xid is not None:
                _log.warning("xid", uuid=xid.uuid, number=xid.number)
                self.record_xid(xid)
