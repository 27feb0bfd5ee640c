"""Explain endpoint: `POST /v1/explain` shows the decision about an object, and reserves nothing.

For a caller who may not list holders in all namespaces, the decision names no other namespace.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuledger.server.endpoints.refusals import (
    invalid_field,
    invalid_parameter,
    refused,
    refused_body,
)
from ledger.runtime.http import v1_access
from ledger.runtime.http.json_endpoint import (
    BodyBudget,
    BudgetShare,
    ClientGone,
    RequestRefused,
    read_body,
)
from ledger.runtime.settings.settings import Settings
from projections.api import query_parameters
from projections.api.query_parameters import InvalidParameter
from webhook.admission.explanation import Explanation, NamespaceMissing, OtherNamespace, explain
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.api.admission_review import BadReview

EXPLAINED_MAX: Final = 4
"""Number of explain requests of the largest size in memory at once, apart from reviews."""

BUSY: Final = "too many manifests are explained at once; try again in a second"


class ExplainEndpoint:
    """Answers a review or a Pod with the decision of the validating webhook."""

    def __init__(self, validating: ValidatingWebhook, settings: Settings) -> None:
        """Decide by this webhook, with its bounds of time and size."""
        self._validating, self._settings = validating, settings
        self._bodies = BodyBudget(EXPLAINED_MAX * settings.review_bytes_max)
        self._deciding = asyncio.Lock()

    def route(self) -> Route:
        """Return the route."""
        return Route("/v1/explain", self.answer, methods=["POST"])

    async def answer(self, request: Request) -> Response:
        """Return the answer to a review or a Pod, without a reservation."""
        with self._bodies.holding() as held:
            try:
                explanation = await self._explanation(request, held)
            except ClientGone:
                return Response(status_code=400)
            except tuple(_REFUSALS) as error:
                return _REFUSALS[type(error)](error)
        return Response(msgspec.json.encode(explanation), media_type="application/json")

    async def _explanation(self, request: Request, held: BudgetShare) -> Explanation:
        clock = asyncio.get_running_loop().time
        until = clock() + self._settings.admission_deadline_seconds
        user = query_parameters.text(request.query_params, "user")
        namespace = query_parameters.text(request.query_params, "namespace")
        body = await read_body(request.receive, self._settings.review_bytes_max, until, held)
        own_holders = not await v1_access.may_name_holders(request.scope, until)
        async with self._turn(until):
            return await explain(
                self._validating,
                body,
                deadline=until - clock(),
                username=user,
                namespace=namespace or None,
                own_holders=own_holders,
            )

    @asynccontextmanager
    async def _turn(self, until: float) -> AsyncIterator[None]:
        """Wait until no other manifest is decided, because a large one takes tens of milliseconds.

        Reviews are answered between two of them. Raises RequestRefused at a loop time.
        """
        try:
            async with asyncio.timeout_at(until):
                await self._deciding.acquire()
        except TimeoutError:
            raise RequestRefused(503, "Busy", message=BUSY) from None
        try:
            await asyncio.sleep(0)
            yield
        finally:
            self._deciding.release()


_REFUSALS: Final[dict[type[Exception], Callable[[Any], Response]]] = {
    OtherNamespace: lambda error: refused(400, str(error), field="namespace"),
    NamespaceMissing: lambda error: refused(404, str(error), field="namespace"),
    BadReview: lambda error: invalid_field(error.message, error.field),
    InvalidParameter: invalid_parameter,
    v1_access.RightsUnclear: lambda error: refused(error.status, str(error)),
    RequestRefused: refused_body,
}
"""The refusal for each exception about a request."""
