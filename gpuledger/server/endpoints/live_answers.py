"""Live answers: the routes of `/v1` that answer from the live ledger, also for the pages."""

from starlette.routing import Route

from gpuledger.server.endpoints.explain_endpoint import ExplainEndpoint
from gpuledger.server.endpoints.fit_endpoint import FitEndpoint
from gpuledger.server.endpoints.live_fit import LiveFit
from gpuledger.server.endpoints.live_offers import LiveOffers
from gpuledger.server.endpoints.live_waiting import Answer, LiveWaiting
from gpuledger.server.endpoints.waiting_endpoint import WaitingEndpoint
from gpuledger.server.ledger_replica import LedgerReplica
from ledger.runtime.settings.settings import Settings
from webhook.admission.validating_webhook import ValidatingWebhook


class LiveAnswers:
    """Explanations, fits and waiting pods of one replica."""

    def __init__(
        self,
        settings: Settings,
        *,
        replica: LedgerReplica,
        validating: ValidatingWebhook,
        waiting: Answer | None,
        offers: LiveOffers | None,
    ) -> None:
        """Decide by this webhook, and try cards by the follower of the replica.

        `waiting` returns the waiting pods where this replica has them, and `offers` has the cards
        in ResourceSlices; both are None without a cluster.
        """
        self.offers = offers
        self.waiting = LiveWaiting(replica.questions, waiting)

        def position() -> int:
            return replica.writer.head.position if replica.writer is not None else 0

        self.fit = LiveFit(
            validating,
            settings,
            follower=lambda: replica.follower,
            position=position,
            offers=offers,
        )
        self._settings, self._validating = settings, validating

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            ExplainEndpoint(self._validating, self._settings).route(),
            FitEndpoint(self.fit, self._settings).route(),
            WaitingEndpoint(self.waiting, self._settings.cluster).route(),
        ]
