"""Live fit: where the pods of a manifest fit now, for `/v1/fit` and the page.

The validating webhook decides about quotas, as in an explanation. The follower process tries the
cards, so a large cluster delays no review. YAML is read in a thread that pauses often.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from gpuledger.cli import manifest_document
from gpuledger.cli.manifest_document import ManifestProblem
from gpuledger.manifest_fit.fit_report import DecidedFit, FitReport
from gpuledger.manifest_fit.manifest_pods import card_requests
from gpuledger.server.endpoints.live_offers import LiveOffers
from gpuledger.server.follower.follower_supervisor import FollowerSupervisor, FollowerUnavailable
from ledger.runtime.settings.settings import Settings
from webhook.admission.explanation import NAMESPACE, Explanation, explain
from webhook.admission.validating_webhook import ValidatingWebhook

MANIFEST_BYTES_MAX: Final = 256 * 1024
"""Largest manifest."""

YAML_BYTES_MAX: Final = 64 * 1024
"""Largest manifest in YAML, which takes as long to read as JSON of a hundred times its size."""

FITS_MAX: Final = 4
"""Most fits in progress; the follower tries one at a time."""

FITS_OF_ONE_MAX: Final = 2
"""Most fits in progress of one namespace."""

NODES_DEFAULT: Final = 100
NODES_MAX: Final = 500
"""Most nodes that a report names of each pod."""

MANIFEST: Final = "the manifest"
"""The name of the body in messages."""


class FitsBusy(Exception):
    """Too many fits are in progress; the message has the remedy."""


class LiveFitQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest to fit, as JSON or YAML.

    `namespace` and `username` are used where the manifest has none. A `restricted` report is for a
    caller who may not list the cards of all namespaces. With `own_holders`, for one who may not
    list the holders there, a denial names no other namespace.
    """

    manifest: bytes
    namespace: str | None = None
    username: str = ""
    nodes_max: int = NODES_DEFAULT
    restricted: bool = False
    own_holders: bool = False


class LiveFit:
    """Fits manifests on the live ledger.

    `follower` returns the supervisor of the follower, and `position` the newest stored position,
    which the answer has at least.
    """

    def __init__(
        self,
        validating: ValidatingWebhook,
        settings: Settings,
        *,
        follower: Callable[[], FollowerSupervisor | None],
        position: Callable[[], int],
        offers: LiveOffers | None = None,
    ) -> None:
        """Decide by this webhook, with the deadline of reviews.

        `offers` are the cards in ResourceSlices, None without a cluster.
        """
        self._validating, self._settings, self._follower = validating, settings, follower
        self._position, self._offers = position, offers
        self._fitting: Counter[str] = Counter()
        self._reading = asyncio.Lock()

    async def fit(self, question: LiveFitQuestion, seconds: float | None = None) -> DecidedFit:
        """Return the decision of the webhook about a manifest, and where its pods fit, within
        `seconds`; None is the deadline of reviews.

        Raises ManifestProblem, OtherNamespace, NamespaceMissing, BadReview, InvalidCardRequest,
        FitsBusy, FollowerUnavailable and TimeoutError.
        """
        with self._place(question.namespace or ""):
            return await self._fit(
                question, self._settings.admission_deadline_seconds if seconds is None else seconds
            )

    async def _fit(self, question: LiveFitQuestion, seconds: float) -> DecidedFit:
        until = time.monotonic() + seconds
        body = await self._as_json(question.manifest, until)
        explained = await self._explained(body, question, until)
        where = explained.namespace.rpartition("/")[2] or question.namespace or NAMESPACE
        context = self._validating.context
        requests = card_requests(body, where, context.catalog, context.rules)
        follower = self._follower()
        if follower is None:
            raise FollowerUnavailable("the log of this replica is not open yet; try again")
        offers = self._offers
        answer = await follower.ask(
            requests,
            within=where if question.restricted else "",
            nodes_max=question.nodes_max,
            offers=offers.unsent if offers is not None else None,
            position=self._position(),
            seconds=_left(until),
        )
        report = FitReport(
            answer.position,
            where,
            all(pod.fits for pod in answer.pods),
            explained.allowed,
            explained.answer,
            answer.pods,
            question.restricted,
            answer.offered if offers is not None and offers.is_listed() else None,
        )
        return DecidedFit(explained, report)

    async def _as_json(self, manifest: bytes, until: float) -> bytes:
        """Return a manifest as JSON, until a monotonic time; one of YAML is read at a time.

        Raises ManifestProblem and TimeoutError.
        """
        if manifest_document.is_json(manifest):
            return manifest_document.as_json(manifest, MANIFEST)
        if len(manifest) > YAML_BYTES_MAX:
            raise ManifestProblem(
                f"{MANIFEST} has {len(manifest)} bytes of YAML, the most is {YAML_BYTES_MAX}: leave"
                " out what no pod needs, such as managedFields, or send JSON"
            )
        pause = manifest_document.pausing_until(until)
        async with asyncio.timeout(_left(until)), self._reading:
            return await asyncio.to_thread(manifest_document.as_json, manifest, MANIFEST, pause)

    async def _explained(self, body: bytes, question: LiveFitQuestion, until: float) -> Explanation:
        return await explain(
            self._validating,
            body,
            deadline=_left(until),
            username=question.username,
            namespace=question.namespace,
            own_holders=question.own_holders,
        )

    @contextmanager
    def _place(self, namespace: str) -> Iterator[None]:
        """Count a fit within the block. Raises FitsBusy."""
        if self._fitting.total() >= FITS_MAX or self._fitting[namespace] >= FITS_OF_ONE_MAX:
            raise FitsBusy("too many fits are in progress; try again in a second")
        self._fitting[namespace] += 1
        try:
            yield
        finally:
            self._fitting[namespace] -= 1
            if not self._fitting[namespace]:
                del self._fitting[namespace]


def _left(until: float) -> float:
    """Return the seconds until a monotonic time. Raises TimeoutError afterwards."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
