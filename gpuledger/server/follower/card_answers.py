"""Card answers: the follower tries pods on the cards of its state, for the service.

The follower has the state of the same log in another process, so the calculation delays no review.
The inventory of the cards is loaded with the first question, and follows the log afterwards. Each
question is answered in a thread, about a copy.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import structlog

from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.manifest_fit.card_fit import CardFit
from gpuledger.manifest_fit.fit_report import PodFit
from gpuledger.manifest_fit.manifest_pods import PodCardRequest
from gpuledger.server.follower.unsent_offers import OfferMessage
from gpuledger.wiring.extender_from_settings import extender_settings
from ledger.core.model.state import State
from ledger.log.records import Record
from ledger.runtime.settings.settings import Settings

POLL_SECONDS: Final = 0.02
"""Time between two looks for a position."""

_log: Final = structlog.get_logger("gpuledger.server.follower")


class CardQuestion(msgspec.Struct, frozen=True, tag=True):
    """A question of the service, to be answered within `seconds` as of a `position` or later.

    Each report names at most `nodes_max` nodes; with `within`, it is restricted to the namespace of
    this local name.
    """

    number: int
    requests: list[PodCardRequest]
    within: str
    nodes_max: int
    position: int
    seconds: float


class CardAnswer(msgspec.Struct, frozen=True):
    """The answer to the question of a number at a position of the log; or the `problem`.

    `offered` cards of the cluster were left out, because ResourceSlices have them.
    """

    number: int
    position: int
    pods: list[PodFit]
    problem: str = ""
    offered: int = 0


class FoldedLog(Protocol):
    """The state of the log as it is folded; a `Projector` is one."""

    @property
    def state(self) -> State:
        """The state after the last folded record."""
        ...

    def subscribe(self, callback: Callable[[Record], None]) -> None:
        """Call `callback` after every record that is folded from now on."""
        ...


class CardAnswers:
    """Answers questions about the cards of the cluster of the settings, one at a time."""

    def __init__(self, settings: Settings) -> None:
        """Answer that the log is being read, until `start`."""
        self._settings = settings
        self._folded: FoldedLog | None = None
        self._inventory = ClusterInventory(settings.cluster, UsageOverlay())
        self._offered: set[str] = set()
        self._begun: list[str] = []
        self._busy = asyncio.Lock()

    def start(self, folded: FoldedLog) -> None:
        """Answer from this log."""
        self._folded = folded
        folded.subscribe(self._follow)

    def take_offers(self, message: OfferMessage) -> None:
        """Leave the cards in ResourceSlices out from now on."""
        if message.anew:
            for node in self._offered:
                self._inventory.set_offered(node, frozenset())
            self._offered.clear()
        for offer in message.offers:
            self._begun += offer.uuids
            if offer.goes_on:
                continue
            self._inventory.set_offered(offer.node, frozenset(self._begun))
            if self._begun:
                self._offered.add(offer.node)
            else:
                self._offered.discard(offer.node)
            self._begun = []

    async def answer(self, question: CardQuestion) -> CardAnswer:
        """Return the answer to a question, after those asked before it."""
        until = time.monotonic() + question.seconds
        async with self._busy:
            try:
                return await self._answer(question, until)
            except TimeoutError:
                problem = f"trying the cards took longer than {question.seconds:.1f} s"
            except CommandError as error:
                problem = str(error)
            except Exception as error:  # noqa: BLE001 - no manifest may end the projection
                _log.exception("cards_not_tried")
                problem = f"the trial failed with {type(error).__name__}; see the service's log"
        return CardAnswer(question.number, 0, [], problem)

    async def _answer(self, question: CardQuestion, until: float) -> CardAnswer:
        """Return the position and the fits. Raises TimeoutError and CommandError."""
        if self._folded is None:
            raise CommandError(Exit.UNREACHABLE, "the follower still reads the log; try again")
        while self._folded.state.position < question.position:
            if time.monotonic() > until:
                raise CommandError(
                    Exit.UNREACHABLE,
                    f"the follower has read position {self._folded.state.position} of"
                    f" {question.position}; try again",
                )
            await asyncio.sleep(POLL_SECONDS)
        frozen = self._loaded(self._folded.state).frozen_copy()
        offered = int((frozen.arrays.present & frozen.arrays.offered).sum())
        pods = await asyncio.to_thread(self._tried, frozen, question, until)
        return CardAnswer(question.number, frozen.position, pods, offered=offered)

    def _loaded(self, state: State) -> ClusterInventory:
        if not self._inventory.loaded:
            self._inventory.load(state)
        return self._inventory

    def _follow(self, record: Record) -> None:
        if self._inventory.loaded and self._folded is not None:
            self._inventory.follow(self._folded.state, record)

    def _tried(
        self, frozen: ClusterInventory, question: CardQuestion, until: float
    ) -> list[PodFit]:
        """Return the fits. Raises TimeoutError at `until`, a monotonic time, and CommandError."""

        def pause() -> None:
            if time.monotonic() > until:
                raise TimeoutError

        cards = CardFit(
            frozen,
            extender_settings(self._settings).preferences,
            nodes_max=question.nodes_max,
            within=question.within,
            pause=pause,
        )
        return [cards.fit(request) for request in question.requests]
