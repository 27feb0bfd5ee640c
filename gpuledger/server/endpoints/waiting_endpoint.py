"""Waiting endpoint: `GET /v1/waiting` lists the pods that wait behind scheduling gates."""

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuledger.server.endpoints.live_waiting import LiveWaiting, NoCluster, WaitingUnknown
from gpuledger.server.endpoints.refusals import invalid_parameter, refused
from projections.api import query_parameters
from projections.api.query_parameters import InvalidParameter
from webhook.gates.waiting_report import WaitingQuestion


class WaitingEndpoint:
    """Answers with a JSON list of rows of `WaitingRow`; `Gpuledger-Next` as in other lists."""

    def __init__(self, live: LiveWaiting, cluster: str) -> None:
        """Answer about the pods of a cluster."""
        self._live, self._cluster = live, cluster

    def route(self) -> Route:
        """Return the route."""
        return Route("/v1/waiting", self.answer, methods=["GET"])

    async def answer(self, request: Request) -> Response:
        """Return the rows, or a refusal that names the remedy."""
        try:
            page = await self._live.page(self._question(request.query_params))
        except InvalidParameter as error:
            return invalid_parameter(error)
        except NoCluster as error:
            return refused(404, str(error))
        except WaitingUnknown as error:
            return refused(503, str(error))
        headers = {"Gpuledger-Next": page.next} if page.next else None
        return Response(
            msgspec.json.encode(page.rows), headers=headers, media_type="application/json"
        )

    def _question(self, query: QueryParams) -> WaitingQuestion:
        """Read the parameters. Raises InvalidParameter."""
        if "at" in query:
            raise InvalidParameter(
                "at",
                query["at"],
                message="the log does not record who waits: leave it out for now",
            )
        cluster = query_parameters.text(query, "cluster")
        if cluster not in ("", self._cluster):
            raise InvalidParameter(
                "cluster", cluster, message=f"this service sees the pods of {self._cluster} only"
            )
        return WaitingQuestion(
            query_parameters.text(query, "namespace"),
            query_parameters.limit(query),
            query_parameters.text(query, "after"),
        )
