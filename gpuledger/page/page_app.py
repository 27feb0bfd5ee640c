"""Page application: the routes below `/page/`, each answer with its headers, errors as pages.

Every answer has a deadline, and the security headers of `answer_headers`. An answer of a page has
an ETag that begins with the position of the log.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from gpuledger.page import answer_headers
from gpuledger.page.access.form_tokens import FormTokens
from gpuledger.page.form_body import read_form
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_errors import TITLES, PageError
from gpuledger.page.page_list import PAGES
from gpuledger.page.page_request import PageRequest
from gpuledger.page.page_source import PageSource
from gpuledger.page.page_templates import render
from gpuledger.page.static_files import EDITION, static_file
from gpuledger.page.viewer import Viewer
from gpuledger.version import VERSION
from projections.api import query_parameters
from projections.api.query_parameters import InvalidParameter
from projections.queries.moments import InvalidMoment, resolve, time_of
from projections.store.readers import ProjectionView, Readers
from projections.store.store_writer import StoreError

PREFIX: Final = "/page"
HOME: Final = f"{PREFIX}/"

ANSWER_SECONDS: Final = 15.0
"""Deadline of one answer."""

_log: Final = structlog.get_logger("gpuledger.page")

Identify = Callable[[Request], Awaitable[Viewer]]
"""Returns the viewer of a request. Raises PageError 401, 403, 429, 503."""


class PageApp:
    """The pages over one projection and one source."""

    def __init__(
        self, readers: Readers, source: PageSource, *, identify: Identify, tokens: FormTokens
    ) -> None:
        self._readers, self._source, self._identify = readers, source, identify
        self._tokens = tokens

    def routes(self) -> list[BaseRoute]:
        """Return the routes: `/`, which leads to the pages, and everything below `/page`."""
        inner: list[BaseRoute] = [
            Route(page.path, self._endpoint(page), methods=_methods(page)) for page in PAGES
        ]
        inner += [
            Route("/static/{name}", self._guarded(static_file), methods=["GET"]),
            Route("/{path:path}", self._guarded(_missing)),
        ]
        return [
            Route("/", self._guarded(_to_home), methods=["GET"]),
            Mount(PREFIX, routes=inner),
            Route(PREFIX, self._guarded(_to_home), methods=["GET"]),
        ]

    def _endpoint(self, page: PageDefinition) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            viewer = await self._identify(request)
            form = await self._form(request, viewer) if request.method == "POST" else None
            async with self._readers.view() as view:
                made = await self._page_request(request, view, viewer, form)
                content = await page.view(made)
                context = _context(page, made) | {"page": content, "request": made}
                body = await render(page.template, context)
            return _answer(request, body, made, refreshes=bool(context["refreshes"]))

        return self._guarded(answer)

    def _guarded(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint with a deadline and headers, whose errors are pages."""

        async def guarded(request: Request) -> Response:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    response = await answer(request)
            except PageError as error:
                response = await _refusal(error)
            except InvalidParameter as error:
                response = await _refusal(_of_parameter(error))
            except StoreError as error:
                response = await _refusal(PageError(503, f"{error}."))
            except TimeoutError:
                response = await _refusal(_TOO_LONG)
            except Exception as error:  # noqa: BLE001 - a defect of one page stops no other
                _log.exception("page_failed", path=request.url.path, reason=repr(error))
                response = await _refusal(PageError(500, "The page has an error.", remedy=_REPORT))
            response.headers.update(
                {n: v for n, v in answer_headers.SECURITY.items() if n not in response.headers}
            )
            return response

        return guarded

    async def _form(self, request: Request, viewer: Viewer) -> dict[str, str]:
        form = dict(await read_form(request))
        if not self._tokens.is_valid(form.pop("form_token", ""), viewer.key):
            raise PageError(
                403,
                "The form has expired, or belongs to another user.",
                remedy="Go back, load the page again, and send the form again.",
            )
        return form

    async def _page_request(
        self,
        request: Request,
        view: ProjectionView,
        viewer: Viewer,
        form: dict[str, str] | None,
    ) -> PageRequest:
        query = request.query_params
        if len(query.multi_items()) > len(query):
            raise PageError(400, "A parameter is given more than once.", remedy="Give each once.")
        at = query.get("at") or None
        try:
            moment = query_parameters.moment(query, "at") if at else None
            position = await resolve(view, moment)
        except InvalidMoment as error:
            raise InvalidParameter("at", query["at"], message=str(error)) from error
        return PageRequest(
            path=request.url.path,
            query=query,
            form=form,
            viewer=viewer,
            source=self._source,
            view=view,
            position=position,
            time=await time_of(view, position),
            now=time.time_ns() // 1000,
            form_token=self._tokens.token(viewer.key),
        )


_TOO_LONG: Final = PageError(
    504, "Reading took too long.", remedy="Ask for less: name a namespace, or a later moment."
)
_REPORT: Final = "Load the page again. The log of the service has the reason (page_failed)."


def _methods(page: PageDefinition) -> list[str]:
    return ["GET", "POST"] if page.form else ["GET"]


def _context(page: PageDefinition, request: PageRequest) -> dict[str, object]:
    links = [
        {
            "href": request.href(f"{PREFIX}{other.path}"),
            "name": other.navigation,
            "current": other is page,
        }
        for other in PAGES
        if other.navigation
    ]
    return {
        "title": page.title,
        "version": VERSION,
        "edition": EDITION,
        "home": request.href(HOME),
        "navigation": links,
        "kept": [(n, v) for n, v in request.query.items() if n not in ("at", "page")],
        "refreshes": not (page.form or request.is_past or request.is_paused),
        "refresh_seconds": answer_headers.REFRESH_SECONDS,
    }


def _answer(request: Request, body: bytes, made: PageRequest, *, refreshes: bool) -> Response:
    tag = answer_headers.tag_of(made.position, body)
    headers = {
        "ETag": tag,
        "Gpuledger-Position": str(made.position),
        "Gpuledger-Head": str(made.view.head.position),
    }
    if refreshes:
        headers["Refresh"] = str(answer_headers.REFRESH_SECONDS)
    if request.method == "POST":
        return Response(body, headers=headers, media_type="text/html")
    if answer_headers.is_known(tag, request.headers.getlist("if-none-match")):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="text/html")


async def _refusal(error: PageError) -> Response:
    context = {
        "title": TITLES.get(error.status, "Error"),
        "version": VERSION,
        "edition": EDITION,
        "home": HOME,
        "navigation": [],
        "message": error.message,
        "remedy": error.remedy,
    }
    body = await render("error.html", context)
    return Response(body, error.status, headers=error.headers, media_type="text/html")


def _of_parameter(error: InvalidParameter) -> PageError:
    return PageError(
        400,
        f"Parameter {error.parameter} = {error.value}: {error.message}.",
        remedy=f"Change {error.parameter} in the address, or leave it out.",
    )


async def _missing(request: Request) -> Response:
    raise PageError(
        404, f"There is no page {request.url.path}.", remedy="Open the overview and follow a link."
    )


async def _to_home(request: Request) -> Response:
    return RedirectResponse(HOME, status_code=307)
