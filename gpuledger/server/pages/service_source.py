"""Service source: the facts that the pages show beside the projection, from the live ledger."""

import asyncio
from collections.abc import Sequence

from gpuledger.cli.exit_codes import CommandError
from gpuledger.cli.manifest_input import as_json
from gpuledger.page.page_errors import PageError
from gpuledger.page.page_source import LogHealth, WaitingRow
from gpuledger.queries.fit_of_manifest import FitReport
from gpuledger.server.ledger_replica import LedgerReplica
from ledger.runtime.settings.settings import Settings
from webhook.admission.explanation import Explanation, NamespaceMissing, OtherNamespace, explain
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.api.admission_review import BadReview


class ServiceSource:
    """The source of a service: its live ledger."""

    def __init__(
        self, settings: Settings, *, replica: LedgerReplica, validating: ValidatingWebhook
    ) -> None:
        self._settings, self._replica, self._validating = settings, replica, validating

    async def waiting(self, namespace: str) -> Sequence[WaitingRow] | None:
        """Return None: the log does not record who waits."""
        return None

    async def health(self) -> LogHealth:
        """Return the state of the log, as this replica has it."""
        replica = self._replica
        problem, durability = replica.unavailable_reason(), replica.durability
        problems = [problem] if problem is not None else []
        if durability is not None:
            problems += durability.problems
        state = replica.state
        origin = f"the service of cluster {self._settings.cluster}"
        position = state.position if replica.writer is not None else None
        return LogHealth(position, origin, state.hash.hex(), tuple(problems))

    async def explain(self, manifest: bytes, namespace: str, user: str) -> Explanation:
        """Return the decision about a manifest. Raises PageError."""
        try:
            return await explain(
                self._validating,
                await asyncio.to_thread(as_json, manifest, "the manifest"),
                deadline=self._settings.admission_deadline_seconds,
                username=user,
                namespace=namespace or None,
            )
        except (CommandError, OtherNamespace) as error:
            raise PageError(400, str(error)) from error
        except NamespaceMissing as error:
            raise PageError(404, str(error)) from error
        except BadReview as error:
            raise PageError(400, f"{error.field}: {error.message}") from error

    async def fit(self, manifest: bytes, namespace: str, *, at: str, restricted: bool) -> FitReport:
        """Refuse: the service tries no cards. Raises PageError 503."""
        raise PageError(
            503, "The service does not try cards.", remedy="Run `gpuledger fit` on the store."
        )
