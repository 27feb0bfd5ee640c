"""Store source: what the pages show beside the projection, from the log of a store.

No cluster is connected, so waiting pods are not known. Reading the log may start its server, so
one request at a time does it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from msgspec import structs

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.manifest_input import as_json
from gpuledger.manifest_fit.fit_report import DecidedFit
from gpuledger.page.page_errors import ManifestError, PageError
from gpuledger.page.page_source import LogHealth, ManifestQuestion
from gpuledger.queries.fit_of_manifest import fit_body
from gpuledger.storage.open_log import open_log
from gpuledger.storage.past_ledger import PastLedger, position_of
from gpuledger.storage.seen_log_ends import noted
from gpuledger.storage.time_ranges import moment_at
from ledger.log.recovery.replay import state_at
from ledger.runtime.settings.settings import Settings
from projections.queries.card_usage import CardOffers
from webhook.api.admission_review import BadReview
from webhook.gates.waiting_report import WaitingRow

MANIFEST: Final = "the manifest"
"""The name of a manifest in messages."""

TURN_SECONDS: Final = 10.0
"""Longest wait for other requests that read the log."""

_READS_ALL: Final = "only this machine reads a store, and it may list everything"

_STATUS: Final = {Exit.USAGE: 400, Exit.NOT_FOUND: 404, Exit.DENIED: 400}
"""Status of the errors of commands; the others are 503."""


class StoreSource:
    """The source of a store; `origin` names it on the pages. The log of a store has no slices."""

    offers: CardOffers | None = None

    def __init__(self, settings: Settings, origin: str, *, cluster: str = "") -> None:
        """Decide about manifests of this cluster, of any cluster of the log when it is ""."""
        self._settings, self._origin, self.cluster = settings, origin, cluster
        self._turn = asyncio.Lock()
        self._recalled: PastLedger | None = None

    async def waiting(self, namespace: str) -> Sequence[WaitingRow] | None:
        """Return None: the log does not record who waits."""
        return None

    async def health(self) -> LogHealth:
        """Return the last position that the store has seen of its log."""
        try:
            head = noted(self._settings)
        except CommandError as error:
            return LogHealth(None, self._origin, problems=(str(error),))
        return LogHealth(None if head is None else head.position, self._origin)

    async def fit(self, question: ManifestQuestion) -> DecidedFit:
        """Return the decision, and the nodes on which a manifest's pods fit. Raises PageError."""
        assert not question.restricted, _READS_ALL
        assert not question.own_holders, _READS_ALL
        settings = self._settings
        if question.cluster:
            settings = structs.replace(settings, cluster=question.cluster)
        async with self._asking():
            body = await asyncio.to_thread(as_json, question.manifest, MANIFEST)
            recalled = await self._ledger_at(question.at)
            return await fit_body(
                settings, recalled, body, question.namespace or None, question.user
            )

    async def _ledger_at(self, at: str) -> PastLedger:
        """Return the ledger at a moment; that of the last question is kept."""
        moment = moment_at(at)
        async with open_log(self._settings) as opened:
            last = (await opened.log.extent()).last
            position = await position_of(opened.log, moment, last)
            kept = self._recalled
            if kept is None or kept.state.position != position:
                self._recalled = kept = PastLedger(await state_at(opened.log, position))
        return kept

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Hold the log for the block, and turn its errors into those of pages."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turn.acquire()
        except TimeoutError:
            raise PageError(503, "Other requests read the log.", remedy="Try again.") from None
        try:
            yield
        except BadReview as error:
            raise ManifestError(error.message, error.field) from error
        except PageError:
            raise
        except Exception as error:
            from gpuledger.cli.expected_errors import command_error_for

            known = command_error_for(error)
            if known is None:
                raise
            raise PageError(_STATUS.get(known.status, 503), str(known)) from error
        finally:
            self._turn.release()
