"""Fit endpoint: `POST /v1/fit` shows where the pods of a manifest fit, and reserves nothing.

A caller who may not list cards in all namespaces gets a restricted report, and one who may not list
holders there gets a decision without names of other namespaces.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuledger.cli import manifest_document
from gpuledger.cli.manifest_document import ManifestProblem
from gpuledger.manifest_fit.manifest_pods import InvalidCardRequest
from gpuledger.server.endpoints.live_fit import (
    FITS_MAX,
    MANIFEST_BYTES_MAX,
    NODES_DEFAULT,
    NODES_MAX,
    FitsBusy,
    LiveFit,
    LiveFitQuestion,
)
from gpuledger.server.endpoints.refusals import (
    invalid_field,
    invalid_parameter,
    refused,
    refused_body,
)
from gpuledger.server.follower.follower_supervisor import FollowerUnavailable
from ledger.core.model.denials import sentence
from ledger.runtime.http import v1_access
from ledger.runtime.http.json_endpoint import (
    BodyBudget,
    ClientGone,
    RequestRefused,
    read_body,
)
from ledger.runtime.settings.settings import Settings
from projections.api import query_parameters
from projections.api.query_parameters import InvalidParameter
from webhook.admission.explanation import NamespaceMissing, OtherNamespace
from webhook.api.admission_review import BadReview

_TOO_LONG: Final = "the fit took too long: give an object with fewer templates, or try again"


class FitEndpoint:
    """Answers a manifest, as JSON or YAML, with a fit report."""

    def __init__(self, live: LiveFit, settings: Settings) -> None:
        """Answer from this live fit, with its bounds of time and size."""
        self._live, self._seconds = live, settings.admission_deadline_seconds
        self._bytes_max = min(settings.review_bytes_max, MANIFEST_BYTES_MAX)
        self._bodies = BodyBudget(FITS_MAX * self._bytes_max)

    def route(self) -> Route:
        """Return the route."""
        return Route("/v1/fit", self.answer, methods=["POST"])

    async def answer(self, request: Request) -> Response:
        """Return the report, or a refusal that names field and remedy."""
        with self._bodies.holding() as held:
            until = asyncio.get_running_loop().time() + self._seconds
            try:
                body = await read_body(request.receive, self._bytes_max, until, held)
                return await self._answer(request, body, until)
            except RequestRefused as error:
                return refused_body(error)
            except ClientGone:
                return Response(status_code=400)

    async def _answer(self, request: Request, body: bytes, until: float) -> Response:
        try:
            question = await _question(request, body, until)
            seconds = until - asyncio.get_running_loop().time()
            report = (await self._live.fit(question, seconds)).report
        except (BadReview, InvalidCardRequest) as error:
            return await _invalid(body, error)
        except tuple(_REFUSALS) as error:
            return _REFUSALS[type(error)](error)
        headers = {"Gpuledger-Position": str(report.position)}
        return Response(msgspec.json.encode(report), 200, headers, media_type="application/json")


async def _question(request: Request, body: bytes, until: float) -> LiveFitQuestion:
    """Return the question of a request, until a loop time.

    Raises InvalidParameter and RightsUnclear.
    """
    query = request.query_params
    if "at" in query:
        raise InvalidParameter(
            "at",
            query["at"],
            message="the service fits on the cards of now; run `gpuledger fit --at` on the store",
        )
    nodes_max = query_parameters.number(query, "limit", NODES_DEFAULT, NODES_MAX)
    return LiveFitQuestion(
        manifest=body,
        namespace=query_parameters.text(query, "namespace") or None,
        username=query_parameters.text(query, "user"),
        nodes_max=nodes_max,
        restricted=not await v1_access.may_list_all(request.scope, "cards", until),
        own_holders=not await v1_access.may_name_holders(request.scope, until),
    )


async def _invalid(body: bytes, error: BadReview | InvalidCardRequest) -> Response:
    """Return the refusal of an invalid manifest, with the field and its line."""
    if isinstance(error, BadReview):
        message, field = error.message, error.field
    else:
        message, field = sentence(error.denial), error.denial.field
    line = await manifest_document.line_in_thread(body, field)
    return invalid_field(message, field, line)


_REFUSALS: Final[dict[type[Exception], Callable[[Any], Response]]] = {
    v1_access.RightsUnclear: lambda error: refused(error.status, str(error)),
    InvalidParameter: invalid_parameter,
    ManifestProblem: lambda error: refused(400, str(error), field="body"),
    OtherNamespace: lambda error: refused(400, str(error), field="namespace"),
    NamespaceMissing: lambda error: refused(404, str(error), field="namespace"),
    FitsBusy: lambda error: refused(503, str(error)),
    FollowerUnavailable: lambda error: refused(503, str(error)),
    TimeoutError: lambda _: refused(504, _TOO_LONG),
}
"""The refusal for each exception about a request."""
