"""Page source: what the pages show beside the projection.

The service answers from the live ledger, `gpuledger page` from a store or a backup.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from gpuledger.manifest_fit.fit_report import DecidedFit
from projections.queries.card_usage import CardOffers
from webhook.gates.waiting_report import WaitingRow

WAITING_MAX: Final = 500
"""Most waiting pods that a source returns."""


class LogScrub(msgspec.Struct, frozen=True):
    """A complete read of the log that found its chain intact up to `position`, at µs `time`."""

    position: int
    time: int


class LogHealth(msgspec.Struct, frozen=True):
    """The log behind the page: the last position, and its problems as sentences.

    `position` is None when the log cannot be reached, with the reason in `problems`, and without
    problems where the page does not ask for it, as in a store without a noted head. `origin` is the
    source of the page in words. `scrub` is the last one since the start of this replica, None
    before its end and where none runs.
    """

    position: int | None
    origin: str
    problems: tuple[str, ...] = ()
    scrub: LogScrub | None = None


class ManifestQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest to fit, JSON or YAML, as of `at`, "" for now.

    `namespace` and `user` are used where the manifest has none; "" for neither. `cluster` is the
    cluster of the source if it has one, "" for the source's default. The report of a `restricted`
    question, for a viewer who may not list the cards of all namespaces, names no node, no card and
    no pod of another namespace. With `own_holders`, for one who may not list the holders there, the
    decision names no other namespace.
    """

    manifest: bytes
    namespace: str
    user: str
    cluster: str
    at: str
    restricted: bool
    own_holders: bool


class PageSource(Protocol):
    """Answers about facts that the projection does not have. Each call has its own deadline.

    Raises PageError: 503 when the source cannot answer, 400 for an invalid body.
    """

    @property
    def cluster(self) -> str:
        """The only cluster about whose manifests the source decides, "" for any of the ledger."""
        ...

    @property
    def offers(self) -> CardOffers | None:
        """The cards in ResourceSlices, None where no slices are watched."""
        ...

    async def waiting(self, namespace: str) -> Sequence[WaitingRow] | None:
        """Return the first waiting pods of a namespace, "" for all, at most `WAITING_MAX`.

        None where they are not known.
        """
        ...

    async def health(self) -> LogHealth:
        """Return the state of the log."""
        ...

    async def fit(self, question: ManifestQuestion) -> DecidedFit:
        """Return the decision about a manifest and the nodes on which its pods fit.

        Nothing is reserved.
        """
        ...
