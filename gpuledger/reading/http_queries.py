"""HTTP queries: the port of commands on the read API of a service."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading import reply_errors
from gpuledger.reading.ledger_queries import DriftAnswer, LedgerQueries, QueryAnswer
from gpuledger.reading.paged_reads import PagedQuestion, decoded_reply, read_all
from gpuledger.reading.service_connection import ServiceConnection, problem_of
from ledger.runtime.settings.settings import Settings
from projections.queries.moments import Moment
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
    from webhook.admission.explanation import Explanation
    from webhook.gates.waiting_report import WaitingRow

RANGES: Final = 2
"""The version of the API that has ranges for denials and drift, limits, and drift by user."""

FIT_NODES: Final = 500
"""Nodes that a report of a fit names, the most that a service allows."""

Row = TypeVar("Row")
Connect = Callable[[], Awaitable[ServiceConnection]]


class HttpQueries(LedgerQueries):
    """Answers from a service. Types of rows are imported by the question that returns them."""

    def __init__(
        self, connect: Connect, settings: Settings, *, default_namespace: str = ""
    ) -> None:
        """Connect at the first question, so that wrong usage is reported before anything else."""
        self._connect, self._settings = connect, settings
        self._connected: ServiceConnection | None = None
        self.default_namespace = default_namespace

    async def _connection(self) -> ServiceConnection:
        if self._connected is None:
            self._connected = await self._connect()
        return self._connected

    async def usage(
        self, scope: QueryScope, *, at: str = "", quota: str = ""
    ) -> "QueryAnswer[Usage]":
        """Return the lines of quotas."""
        from projections.queries.quota_usage import Usage

        return await self._as_of("usage", scope, at, Usage, quota=quota)

    async def shares(
        self, scope: QueryScope, by: str, *, at: str = "", quota: str = ""
    ) -> "QueryAnswer[UsageShare]":
        """Return the shares in quotas over many namespaces."""
        from projections.queries.universe_shares import UsageShare

        return await self._as_of("usage", scope, at, UsageShare, quota=quota, by=by)

    async def limits(self, scope: QueryScope) -> "QueryAnswer[QuotaLimit]":
        """Return the limits of quotas."""
        from projections.queries.selecting_quotas import QuotaLimit

        return await self._as_of("usage", scope, "", QuotaLimit, level=RANGES, limits="true")

    async def holders(
        self, scope: QueryScope, *, at: str = "", pods: bool = False, root: str = "", limit: int = 0
    ) -> "QueryAnswer[HolderCharge]":
        """Return the charged objects."""
        from projections.queries.holders import HolderCharge

        return await self._as_of(
            "holders", scope, at, HolderCharge, limit=limit, pods=_flag(pods), root=root
        )

    async def holds(self, scope: QueryScope, *, at: str = "") -> "QueryAnswer[OpenHold]":
        """Return the attempts that are not settled."""
        from projections.queries.holders import OpenHold

        return await self._as_of("holds", scope, at, OpenHold)

    async def cards(
        self, *, cluster: str = "", node: str = "", at: str = "", pods: bool = False
    ) -> "QueryAnswer[CardUsage]":
        """Return the cards."""
        from projections.queries.card_usage import CardUsage

        scope = QueryScope("", cluster)
        return await self._as_of("cards", scope, at, CardUsage, node=node, pods=_flag(pods))

    async def events(
        self, scope: QueryScope, *, since: str = "", until: str = "", limit: int
    ) -> "QueryAnswer[HistoryEvent]":
        """Return the events of a range."""
        from projections.queries.event_history import HistoryEvent

        first, _ = _range(since, until)
        question = PagedQuestion(
            "events", scope, {"from": since, "to": until}, fixed="to", limit=limit
        )
        answer, more = await read_all(await self._connection(), question, HistoryEvent)
        _must_exist(first, answer.head)
        return QueryAnswer(answer.head, answer.head, answer.rows, _position_of(more))

    async def denials(
        self, scope: QueryScope, *, since: str = "", until: str = "", limit: int
    ) -> "QueryAnswer[PastDenial]":
        """Return the denials of a range."""
        from projections.queries.denial_history import PastDenial

        question = _newest("denials", scope, since, until, limit)
        answer, more = await read_all(await self._connection(), question, PastDenial)
        return QueryAnswer(answer.position, answer.head, answer.rows, _position_of(more))

    async def drift(
        self, scope: QueryScope, *, since: str = "", until: str = "", limit: int
    ) -> "DriftAnswer[Correction]":
        """Return the corrections of a range, and unrecognized users."""
        from projections.queries.drift_report import Correction
        from projections.queries.unrecognized_users import UnrecognizedUser

        question = _newest("drift", scope, since, until, limit)
        answer, more = await read_all(await self._connection(), question, Correction)
        by_user = PagedQuestion("drift", scope, {"by": "user"}, level=RANGES)
        users, _ = await read_all(await self._connection(), by_user, UnrecognizedUser)
        place = _position_of(more)
        return DriftAnswer(answer.position, answer.head, answer.rows, place, users.rows)

    async def explain(self, file: str, namespace: str | None, username: str) -> "Explanation":
        """Return the decision of the service."""
        from webhook.admission.explanation import Explanation

        return await self._about(file, "explain", namespace, {"user": username}, Explanation)

    async def fit(self, file: str, namespace: str | None, at: str) -> "FitReport":
        """Return the nodes on which pods fit, by the settings of the service."""
        from gpuledger.manifest_fit.fit_report import FitReport

        if at:
            raise CommandError(
                Exit.USAGE, f"--at {at}: earlier cards are read from a store; add --store-dir"
            )
        params = {"limit": str(FIT_NODES)}
        return await self._about(file, "fit", namespace, params, FitReport)

    async def waiting(self, scope: QueryScope) -> "QueryAnswer[WaitingRow]":
        """Return the pods that wait."""
        from webhook.gates.waiting_report import WaitingRow

        question = PagedQuestion("waiting", scope, {}, of_log=False)
        answer, _ = await read_all(await self._connection(), question, WaitingRow)
        return answer

    async def _as_of(
        self,
        resource: str,
        scope: QueryScope,
        at: str,
        kind: type[Row],
        *,
        level: int = 1,
        limit: int = 0,
        **params: str,
    ) -> QueryAnswer[Row]:
        from gpuledger.storage.time_ranges import moment_at

        moment_at(at)
        question = PagedQuestion(
            resource, scope, {**params, "at": at}, fixed="at", level=level, limit=limit
        )
        answer, more = await read_all(await self._connection(), question, kind)
        return QueryAnswer(answer.position, answer.head, answer.rows, int(bool(more)))

    async def _about(
        self,
        file: str,
        resource: str,
        namespace: str | None,
        params: dict[str, str],
        kind: type[Row],
    ) -> Row:
        """Post the manifest of a file and return the decoded answer. Raises CommandError."""
        from gpuledger.cli import manifest_document, manifest_input

        body = manifest_input.read(file, self._settings.review_bytes_max)
        where = namespace or manifest_document.namespace_in(body) or self.default_namespace
        connection = await self._connection()
        reply = await connection.post(resource, where, params, body)
        if reply.status == 200:
            return decoded_reply(connection, reply, kind)
        message, field = problem_of(reply)
        if reply.status == 400 and field == "namespace":
            raise CommandError(Exit.USAGE, f"--namespace: {message}")
        if reply.status in (400, 413) and field not in reply_errors.MOMENTS:
            why = message or f"{connection.address.origin} refused it with {reply.status}"
            raise manifest_input.refused(file, field, why)
        raise reply_errors.error_of(connection.address, reply, resource)


def _newest(resource: str, scope: QueryScope, since: str, until: str, limit: int) -> PagedQuestion:
    """Return a question with the newest rows first."""
    first, last = _range(since, until)
    ranged = last is not None or isinstance(first, int)
    return PagedQuestion(
        resource,
        scope,
        {"from": since, "to": until},
        cursor="before",
        level=RANGES if ranged else 1,
        limit=limit,
    )


def _range(since: str, until: str) -> tuple[Moment | None, Moment | None]:
    from gpuledger.storage.time_ranges import ordered

    return ordered(since, until)


def _must_exist(first: Moment | None, head: int) -> None:
    """Raise CommandError for a first position after the last one, as the store does."""
    if isinstance(first, int) and first > head:
        raise CommandError(
            Exit.NOT_FOUND, f"position {first} is not projected yet, the last one is {head}"
        )


def _position_of(place: str) -> int:
    """Return the position of the place of a next page, 0 without one."""
    position = place.partition(".")[0]
    return int(position) if position.isascii() and position.isdigit() else 0


def _flag(given: bool) -> str:
    return "true" if given else ""
