"""Explain endpoint: `POST /v1/explain` shows the decision about an object, and reserves nothing.

For a caller who may not list holders in all namespaces, the decision names no other namespace.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuledger.server.endpoints.refusals import invalid_field, refused, refused_body
from ledger.runtime.http import v1_access
from ledger.runtime.http.json_endpoint import (
    BodyBudget,
    BudgetShare,
    ClientGone,
    RequestRefused,
    read_body,
)
from ledger.runtime.settings.settings import Settings
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
            except (OtherNamespace, NamespaceMissing) as error:
                status = 400 if isinstance(error, OtherNamespace) else 404
                return refused(status, str(error), field="namespace")
            except BadReview as error:
                return invalid_field(error.message, error.field)
            except v1_access.RightsUnclear as error:
                return refused(error.status, str(error))
            except RequestRefused as error:
                return refused_body(error)
            except ClientGone:
                return Response(status_code=400)
        return Response(msgspec.json.encode(explanation), media_type="application/json")

    async def _explanation(self, request: Request, held: BudgetShare) -> Explanation:
        clock = asyncio.get_running_loop().time
        until = clock() + self._settings.admission_deadline_seconds
        body = await read_body(request.receive, self._settings.review_bytes_max, until, held)
        own_holders = not await v1_access.may_name_holders(request.scope, until)
        async with self._turn(until):
            return await explain(
                self._validating,
                body,
                deadline=until - clock(),
                username=request.query_params.get("user", ""),
                namespace=request.query_params.get("namespace") or None,
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
