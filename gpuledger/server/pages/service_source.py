"""Service source: the facts that the pages show beside the projection, from the live ledger."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gpuledger.cli.manifest_document import ManifestProblem
from gpuledger.manifest_fit.fit_report import DecidedFit
from gpuledger.manifest_fit.manifest_pods import InvalidCardRequest
from gpuledger.page.page_errors import ManifestError, PageError
from gpuledger.page.page_source import WAITING_MAX, LogHealth, LogScrub, ManifestQuestion
from gpuledger.server.endpoints.live_answers import LiveAnswers
from gpuledger.server.endpoints.live_fit import FitsBusy, LiveFitQuestion
from gpuledger.server.endpoints.live_waiting import NoCluster, WaitingUnknown
from gpuledger.server.follower.follower_supervisor import FollowerUnavailable
from gpuledger.server.ledger_replica import LedgerReplica
from ledger.core.model.denials import sentence
from ledger.runtime.settings.settings import Settings
from projections.queries.card_usage import CardOffers
from webhook.admission.explanation import NamespaceMissing, OtherNamespace
from webhook.api.admission_review import BadReview
from webhook.gates.waiting_report import WaitingQuestion, WaitingRow


class ServiceSource:
    """The source of a service: its live ledger."""

    def __init__(self, settings: Settings, *, replica: LedgerReplica, live: LiveAnswers) -> None:
        self._settings, self._replica, self._live = settings, replica, live

    @property
    def cluster(self) -> str:
        """The cluster of the service."""
        return self._settings.cluster

    @property
    def offers(self) -> CardOffers | None:
        """The cards in ResourceSlices, None without a cluster."""
        return self._live.offers

    async def waiting(self, namespace: str) -> Sequence[WaitingRow] | None:
        """Return the first waiting pods, at most `WAITING_MAX`.

        Returns None without a cluster, and where the active replica does not answer, so that the
        other parts of a page are shown.
        """
        try:
            page = await self._live.waiting.page(WaitingQuestion(namespace, WAITING_MAX))
        except (NoCluster, WaitingUnknown):
            return None
        return page.rows

    async def health(self) -> LogHealth:
        """Return the state of the log, as this replica has it."""
        replica = self._replica
        problem, durability = replica.unavailable_reason(), replica.durability
        problems = [problem] if problem is not None else []
        if durability is not None:
            problems += durability.problems
        origin = f"the service of cluster {self._settings.cluster}"
        position = replica.state.position if replica.writer is not None else None
        mark = replica.scrub
        scrub = LogScrub(mark.position, int(mark.ended * 1_000_000)) if mark.ended else None
        return LogHealth(position, origin, tuple(problems), scrub)

    async def fit(self, question: ManifestQuestion) -> DecidedFit:
        """Return the decision, and the nodes on which a manifest's pods fit now. Raises
        PageError.
        """
        if question.at:
            raise PageError(
                400,
                "The service fits on the cards of now.",
                remedy="Remove the moment, or run `gpuledger page` or `gpuledger fit` on a store.",
            )
        with _as_page_errors():
            return await self._live.fit.fit(
                LiveFitQuestion(
                    manifest=question.manifest,
                    namespace=question.namespace or None,
                    username=question.user,
                    restricted=question.restricted,
                    own_holders=question.own_holders,
                )
            )


@contextmanager
def _as_page_errors() -> Iterator[None]:
    """Turn the refusals of fits within the block into errors of pages."""
    try:
        yield
    except (ManifestProblem, OtherNamespace) as error:
        raise PageError(400, str(error)) from error
    except NamespaceMissing as error:
        raise PageError(404, str(error)) from error
    except BadReview as error:
        raise ManifestError(error.message, error.field) from error
    except InvalidCardRequest as error:
        raise ManifestError(sentence(error.denial), error.denial.field) from error
    except (FitsBusy, FollowerUnavailable) as error:
        raise PageError(503, str(error)) from error
