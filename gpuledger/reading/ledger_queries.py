"""Ledger queries: the port by which commands read a ledger, wherever it is.

`StoreQueries` answers from a store, `HttpQueries` from a service. Both return the same rows.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from gpuledger.cli.output import announce
from projections.queries.query_scope import QueryScope

if TYPE_CHECKING:
    from gpuledger.manifest_fit.fit_report import FitReport
    from projections.queries.card_usage import CardUsage
    from projections.queries.denial_history import PastDenial
    from projections.queries.drift_report import Correction
    from projections.queries.event_history import HistoryEvent
    from projections.queries.holders import HolderCharge, OpenHold
    from projections.queries.quota_usage import Usage
    from projections.queries.selecting_quotas import QuotaLimit
    from projections.queries.universe_shares import UsageShare
    from projections.queries.unrecognized_users import UnrecognizedUser
    from webhook.admission.explanation import Explanation
    from webhook.gates.waiting_report import WaitingRow

Row_co = TypeVar("Row_co", covariant=True)


class QueryAnswer(msgspec.Struct, Generic[Row_co], frozen=True):
    """Rows as of a position of a log whose last projected position is `head`.

    `more` is the position of the first row after a limit, 0 at the end; for rows with the newest
    first, and for rows without a position, it is any other number.
    """

    position: int
    head: int
    rows: Sequence[Row_co]
    more: int = 0

    def announce(self) -> None:
        """Print the position on standard error."""
        announce(self.position, self.head)


class DriftAnswer(QueryAnswer[Row_co], frozen=True):
    """Corrections, and the users whose objects are charged apart from the owners that they name."""

    users: "Sequence[UnrecognizedUser]" = ()


class LedgerQueries(Protocol):
    """Questions to a ledger. Each raises CommandError with a remedy, and what its source raises.

    `at`, `since` and `until` are positions or times as on the command line, empty for none.
    """

    default_namespace: str = ""
    """The namespace of the kubeconfig's context, empty for other sources."""

    def scope(self, namespace: str, cluster: str, *, everywhere: bool = False) -> QueryScope:
        """Return the scope of options; without a namespace it is the default one, or all."""
        chosen = "" if everywhere else namespace or self.default_namespace
        return QueryScope(chosen, cluster)

    async def usage(
        self, scope: QueryScope, *, at: str = "", quota: str = ""
    ) -> "QueryAnswer[Usage]":
        """Return the lines of quotas, or only of those of a name."""
        ...

    async def shares(
        self, scope: QueryScope, by: str, *, at: str = "", quota: str = ""
    ) -> "QueryAnswer[UsageShare]":
        """Return the shares of each `cluster` or `namespace` in quotas over many namespaces."""
        ...

    async def limits(self, scope: QueryScope) -> "QueryAnswer[QuotaLimit]":
        """Return the limits of quotas, with what each covers and selects."""
        ...

    async def holders(
        self, scope: QueryScope, *, at: str = "", pods: bool = False, root: str = "", limit: int = 0
    ) -> "QueryAnswer[HolderCharge]":
        """Return the charged objects; with `pods` or of a `root` also pods within a root.

        They are in the order of cluster, namespace and key. A `limit` of 0 is none.
        """
        ...

    async def holds(self, scope: QueryScope, *, at: str = "") -> "QueryAnswer[OpenHold]":
        """Return the attempts that are not settled."""
        ...

    async def cards(
        self, *, cluster: str = "", node: str = "", at: str = "", pods: bool = False
    ) -> "QueryAnswer[CardUsage]":
        """Return the cards by cluster, node and index."""
        ...

    async def events(
        self, scope: QueryScope, *, since: str = "", until: str = "", limit: int
    ) -> "QueryAnswer[HistoryEvent]":
        """Return the events of a range, oldest first."""
        ...

    async def denials(
        self, scope: QueryScope, *, since: str = "", until: str = "", limit: int
    ) -> "QueryAnswer[PastDenial]":
        """Return the denials of a range, newest first."""
        ...

    async def drift(
        self, scope: QueryScope, *, since: str = "", until: str = "", limit: int
    ) -> "DriftAnswer[Correction]":
        """Return the corrections of a range, newest first, and unrecognized users."""
        ...

    async def explain(self, file: str, namespace: str | None, username: str) -> "Explanation":
        """Return the decision about the review or manifest in a file."""
        ...

    async def fit(self, file: str, namespace: str | None, at: str) -> "FitReport":
        """Return the nodes on which the pods of the manifest in a file fit."""
        ...

    async def waiting(self, scope: QueryScope) -> "QueryAnswer[WaitingRow]":
        """Return the pods that wait behind the scheduling gate, at no position of the log."""
        ...
