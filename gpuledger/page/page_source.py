"""Page source: what the pages show beside the projection.

The service answers from the live ledger, `gpuledger page` from a store or a backup.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from gpuledger.manifest_fit.fit_report import FitReport
from webhook.admission.explanation import Explanation
from webhook.gates.waiting_report import WaitingRow

WAITING_MAX: Final = 500
"""Most waiting pods that a source returns."""


class LogHealth(msgspec.Struct, frozen=True):
    """The log behind the page: the last position, and its problems as sentences.

    `position` is None when the log cannot be reached, with the reason in `problems`, and without
    problems where the page does not ask for it, as in a store without a noted head. `origin` is the
    source of the page in words.
    """

    position: int | None
    origin: str
    problems: tuple[str, ...] = ()


class PageSource(Protocol):
    """Answers about facts that the projection does not have. Each call has its own deadline.

    Raises PageError: 503 when the source cannot answer, 400 for an invalid body.
    """

    async def waiting(self, namespace: str) -> Sequence[WaitingRow] | None:
        """Return the first waiting pods of a namespace, "" for all, at most `WAITING_MAX`.

        None where they are not known.
        """
        ...

    async def health(self) -> LogHealth:
        """Return the state of the log."""
        ...

    async def explain(
        self, manifest: bytes, namespace: str, user: str, *, own_holders: bool
    ) -> Explanation:
        """Return the decision about a manifest, JSON or YAML; nothing is reserved.

        `namespace` and `user` are used where the manifest has none; "" for neither. With
        `own_holders`, for a viewer who may not list the holders of all namespaces, the decision
        names no other namespace.
        """
        ...

    async def fit(
        self,
        manifest: bytes,
        namespace: str,
        user: str,
        *,
        at: str,
        restricted: bool,
        own_holders: bool,
    ) -> FitReport:
        """Return the nodes on which a manifest's pods fit, as of `at`, "" for now.

        A `restricted` report, for a viewer who may not list the cards of all namespaces, names no
        node, no card and no pod of another namespace. The others are those of `explain`.
        """
        ...
