"""Routes of the read API, for the server that includes them.

Every answer is a JSON list of objects. The headers `Gpuledger-Position` and `Gpuledger-Time` are
those of the record as of which the answer holds. `Gpuledger-Head` is the position of the last
record in the projection. If more rows follow, `Gpuledger-Next` has the value of the query parameter
`after` of the next page. For denials and drift the parameter is `before`. `Gpuledger-Api` is the
number of the API's version, by which a client sees whether its parameters are supported.

A caller who may not list holders in all namespaces gets no name of another namespace: neither the
holders of a stored denial nor what a quota covers.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ledger.runtime.http import v1_access
from ledger.runtime.http.loopback_access import is_local
from projections.api import query_parameters
from projections.api.query_parameters import InvalidParameter
from projections.queries.card_usage import CardOffers, cards, with_mechanisms
from projections.queries.denial_history import denials
from projections.queries.drift_report import drift
from projections.queries.event_history import START, history
from projections.queries.holders import holders, holds
from projections.queries.moments import (
    InvalidMoment,
    Moment,
    ReversedRange,
    positions_between,
    rfc3339,
    time_of,
    times_between,
)
from projections.queries.quota_usage import usage
from projections.queries.selecting_quotas import quota_limits
from projections.queries.tenants.foreign_holders import without_foreign_names
from projections.queries.universe_shares import UsageBreakdown, shares
from projections.queries.unrecognized_users import UserBreakdown, unrecognized_users
from projections.store.readers import ProjectionView, Readers
from projections.store.store_writer import StoreError

Answer = tuple[int, Sequence[msgspec.Struct], str]
"""Position of the answer, its rows, and the place of the next page or ""."""

Question = Callable[[ProjectionView, Request], Awaitable[Answer]]

API_VERSION: Final = 2
"""Version 2 has `to` and positions for denials and drift, `by=user` for drift, `limits` for
usage."""

RangeQuestion = Callable[[ProjectionView, Moment | None, Moment | None], Awaitable[tuple[int, int]]]

_DENIALS: Final = "/v1/denials"
_DENIALS_MAX: Final = 10**15
_log: Final = structlog.get_logger("projections")

_encoder: Final = msgspec.json.Encoder()


def routes(readers: Readers, offers: CardOffers | None = None) -> list[Route]:
    """Return the routes under `/v1` that answer from a projection.

    `offers` are the cards in ResourceSlices, None where no slices are watched.
    """
    questions: dict[str, Question] = {
        "/v1/usage": _usage,
        "/v1/holders": _holders,
        "/v1/holds": _holds,
        "/v1/cards": partial(_cards, offers),
        "/v1/events": _events,
        _DENIALS: _denials,
        "/v1/drift": _drift,
    }
    return [
        Route(path, _endpoint(readers, question), methods=["GET"])
        for path, question in questions.items()
    ]


def _endpoint(readers: Readers, question: Question) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that answers a request, or refuses it with a message."""

    async def answer(request: Request) -> Response:
        try:
            if _can_name_others(request):
                # Before a reader is taken, because the review of a right may take long.
                request.state.names = await v1_access.may_name_holders(request.scope)
            async with readers.view() as view:
                position, rows, more = await question(view, request)
                headers = await _headers(view, position, more)
        except InvalidParameter as error:
            return _refuse(400, error.message, parameter=error.parameter, value=error.value)
        except v1_access.RightsUnclear as error:
            return _refuse(error.status, str(error))
        except StoreError as error:
            return _refuse(503, _unreadable(error, request))
        except TimeoutError:
            return _refuse(504, "reading took too long: ask for less with `limit` or `namespace`")
        return Response(_encoder.encode(rows), headers=headers, media_type="application/json")

    return answer


def _unreadable(error: StoreError, request: Request) -> str:
    """Return the message; only a client on this machine gets paths of this machine."""
    if is_local(request.scope, request.headers):
        return str(error)
    _log.warning("projection_unreadable", reason=str(error))
    return (
        "the projection cannot be read now: try again, or ask the operator; the log of the service"
        " has the reason (projection_unreadable)"
    )


def _can_name_others(request: Request) -> bool:
    """Return whether the answer would name other namespaces than that of the query."""
    return request.url.path == _DENIALS or "limits" in request.query_params


async def _headers(view: ProjectionView, position: int, more: str) -> dict[str, str]:
    time = view.head.time if position == view.head.position else await time_of(view, position)
    headers = {
        "Gpuledger-Api": str(API_VERSION),
        "Gpuledger-Position": str(position),
        "Gpuledger-Time": rfc3339(time),
        "Gpuledger-Head": str(view.head.position),
    }
    return {**headers, "Gpuledger-Next": more} if more else headers


def _refuse(status: int, message: str, **details: str) -> Response:
    body = _encoder.encode({"error": {"message": message, **details}})
    return Response(body, status_code=status, media_type="application/json")


async def _usage(view: ProjectionView, request: Request) -> Answer:
    query = request.query_params
    position = await query_parameters.position(view, request.query_params, "at")
    scope, limit = query_parameters.scope(query), query_parameters.limit(query)
    quota, after = query_parameters.text(query, "quota"), query_parameters.text(query, "after")
    by = query_parameters.choice(query, "by", UsageBreakdown)
    if by is not None:
        answer = shares(view, position, scope, by, limit=limit, quota=quota, after=after)
        return position, *await answer
    if query_parameters.flag(query, "limits"):
        named = quota_limits(
            view,
            position,
            scope,
            limit=limit,
            quota=quota,
            after=after,
            names=request.state.names,
        )
        return position, *await named
    return position, *await usage(view, position, scope, limit=limit, quota=quota, after=after)


async def _holders(view: ProjectionView, request: Request) -> Answer:
    query = request.query_params
    position = await query_parameters.position(view, request.query_params, "at")
    scope, limit = query_parameters.scope(query), query_parameters.limit(query)
    after, root = query_parameters.text(query, "after"), query_parameters.text(query, "root")
    pods = query_parameters.flag(query, "pods")
    rows, more = await holders(
        view, position, scope, limit=limit, after=after, pods=pods, root=root
    )
    return position, rows, more


async def _holds(view: ProjectionView, request: Request) -> Answer:
    query = request.query_params
    position = await query_parameters.position(view, request.query_params, "at")
    scope, limit = query_parameters.scope(query), query_parameters.limit(query)
    after = query_parameters.text(query, "after")
    return position, *await holds(view, position, scope, limit=limit, after=after)


async def _cards(offers: CardOffers | None, view: ProjectionView, request: Request) -> Answer:
    query = request.query_params
    namespace = query_parameters.text(query, "namespace")
    if namespace:
        # A client that may read one namespace only would get the pods of all namespaces.
        raise InvalidParameter(
            "namespace", namespace, message="cards belong to no namespace: leave it out"
        )
    position = await query_parameters.position(view, request.query_params, "at")
    cluster, node = query_parameters.text(query, "cluster"), query_parameters.text(query, "node")
    after, pods = query_parameters.text(query, "after"), query_parameters.flag(query, "pods")
    limit = query_parameters.limit(query)
    rows, more = await cards(
        view, position, limit=limit, cluster=cluster, node=node, after=after, pods=pods
    )
    return position, with_mechanisms(rows, view, position, offers), more


async def _events(view: ProjectionView, request: Request) -> Answer:
    query = request.query_params
    first, last = await _range(view, query, positions_between)
    after = query_parameters.place(query, "after") or START
    scope, limit = query_parameters.scope(query), query_parameters.limit(query)
    rows, more = await history(view, first, last, scope, limit=limit, after=after)
    return last, rows, f"{more[0]}.{more[1]}" if more is not None else ""


async def _range(
    view: ProjectionView, query: QueryParams, between: RangeQuestion
) -> tuple[int, int]:
    """Return the range of `from` and `to`. Raises InvalidParameter."""
    first, last = (query_parameters.moment(query, name) for name in ("from", "to"))
    try:
        return await between(view, first, last)
    except ReversedRange as error:
        both = f"{query['from']} and {query['to']}"
        raise InvalidParameter("from and to", both, message=str(error)) from error
    except InvalidMoment as error:
        beyond = isinstance(last, int) and last > view.head.position
        name = "to" if beyond else "from"
        raise InvalidParameter(name, query[name], message=str(error)) from error


async def _denials(view: ProjectionView, request: Request) -> Answer:
    query = request.query_params
    before = query_parameters.number(query, "before", 0, _DENIALS_MAX)
    since, until = await _range(view, query, times_between)
    scope, limit = query_parameters.scope(query), query_parameters.limit(query)
    rows, more = await denials(view, scope, limit=limit, since=since, until=until, before=before)
    if not request.state.names:
        rows = [without_foreign_names(row) for row in rows]
    return view.head.position, rows, str(more) if more else ""


async def _drift(view: ProjectionView, request: Request) -> Answer:
    query = request.query_params
    scope = query_parameters.scope(query)
    if query_parameters.choice(query, "by", UserBreakdown) is not None:
        return view.head.position, await unrecognized_users(view, scope), ""
    before, limit = query_parameters.place(query, "before"), query_parameters.limit(query)
    since, until = await _range(view, query, times_between)
    rows, more = await drift(view, scope, limit=limit, since=since, until=until, before=before)
    return view.head.position, rows, f"{more[0]}.{more[1]}" if more is not None else ""
