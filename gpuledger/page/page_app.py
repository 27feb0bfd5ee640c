"""Page application: the routes below `/page/`, each answer with its headers, errors as pages.

Every answer has a deadline, and the security headers of `answer_headers`. An answer of a page has
an ETag that begins with the position of the log.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from weakref import WeakValueDictionary

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from gpuledger.page.access.form_tokens import FormTokens
from gpuledger.page.access.login_page import Identify, LoginPage
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_errors import TITLES, PageError
from gpuledger.page.page_list import PAGES
from gpuledger.page.page_paths import HOME, LOGIN, LOGOUT, PREFIX
from gpuledger.page.page_request import OFF, PageRequest
from gpuledger.page.page_source import PageSource
from gpuledger.page.page_templates import FRAME, compile_all, render, render_frame
from gpuledger.page.serving import answer_headers
from gpuledger.page.serving.form_body import read_form
from gpuledger.page.serving.static_files import static_file
from gpuledger.page.viewer import LocalViewer, Viewer
from projections.api import query_parameters
from projections.api.query_parameters import InvalidParameter
from projections.queries.moments import time_of
from projections.store.readers import CONNECTIONS, ProjectionView, Readers
from projections.store.store_writer import StoreError

ANSWER_SECONDS: Final = 15.0
"""Deadline of one answer."""

PASSING: Final = (429, 503, 504)
"""Refusals that pass: their page is loaded again, so that a screen on a wall recovers."""

FORMS_MAX: Final = 8
"""Most forms in memory at once, each of 1 MiB at most; others wait for their turn."""

FORMS_OF_ONE_MAX: Final = CONNECTIONS // 2
"""Most forms of one user at once: slow ones leave places and connections of the readers to others.
"""

_log: Final = structlog.get_logger("gpuledger.page")

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Methods that get a page as answer, also where it is a refusal."""

Endpoint = Callable[[Request], Awaitable[Response]]


class PageApp:
    """The pages over one projection and one source."""

    def __init__(
        self,
        readers: Readers,
        source: PageSource,
        *,
        identify: Identify,
        tokens: FormTokens,
        login: LoginPage | None = None,
    ) -> None:
        """`identify` returns the viewers; `login` serves the login page."""
        self._readers, self._source, self._identify = readers, source, identify
        self._tokens, self._login = tokens, login
        self._forms = asyncio.Semaphore(FORMS_MAX)
        self._forms_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        compile_all()

    def routes(self) -> list[BaseRoute]:
        """Return the routes: `/`, which leads to the pages, and everything below `/page`."""
        served: dict[str, tuple[Endpoint, Sequence[str]]] = {
            "/": (_to_home, ["GET"]),
            PREFIX: (_to_home, ["GET"]),
            f"{PREFIX}/static/{{name}}": (static_file, ["GET"]),
        }
        for page in PAGES:
            methods = ["GET", "POST"] if page.form else ["GET"]
            served[f"{PREFIX}{page.path}"] = (self._endpoint(page), methods)
        if self._login is not None:
            served[LOGIN] = (self._login.answer, ["GET", "POST"])
            served[LOGOUT] = (self._sign_out, ["POST"])
        served[f"{PREFIX}/{{path:path}}"] = (_missing, METHODS)
        return [
            Route(path, self._guarded(endpoint, methods), methods=METHODS)
            for path, (endpoint, methods) in served.items()
        ]

    def _endpoint(self, page: PageDefinition) -> Endpoint:
        async def answer(request: Request) -> Response:
            viewer = await self._identify(request)
            if request.method != "POST":
                return await self._shown(request, page, viewer, None)
            # By name: one session has many cookies, which differ in ignored characters.
            own = self._forms_of.setdefault(viewer.name, asyncio.Semaphore(FORMS_OF_ONE_MAX))
            async with own, self._forms:
                form = await self._form(request, viewer)
                return await self._shown(request, page, viewer, form)

        return answer

    async def _shown(
        self,
        request: Request,
        page: PageDefinition,
        viewer: Viewer,
        form: dict[str, str] | None,
    ) -> Response:
        try:
            async with self._readers.view() as view:
                made = await self._page_request(request, view, viewer, form)
                content = await page.view(made)
                context = _context(page, made) | {"page": content, "request": made}
                body = await render(page.template, context)
        except StoreError as error:
            raise _unreadable(error, viewer) from error
        return _answer(request, body, made, refreshes=bool(context["refreshes"]))

    async def _sign_out(self, request: Request) -> Response:
        assert self._login is not None
        return await self._login.sign_out(request, await self._identify(request))

    def _guarded(self, answer: Endpoint, methods: Sequence[str]) -> Endpoint:
        """Return an endpoint of these methods with a deadline and headers, whose errors are
        pages.
        """

        async def guarded(request: Request) -> Response:
            try:
                _require_method(request, methods)
                async with asyncio.timeout(ANSWER_SECONDS):
                    response = await answer(request)
            except Exception as error:  # noqa: BLE001 - a defect of one page stops no other
                response = await self._failed(request, error)
            for name, value in answer_headers.SECURITY.items():
                response.headers.setdefault(name, value)
            return response

        return guarded

    async def _failed(self, request: Request, error: Exception) -> Response:
        """Return the page of an error; a browser without a session is led to the login."""
        refusal = _as_refusal(error)
        if refusal is None:
            _log.error("page_failed", path=request.url.path, reason=repr(error), exc_info=error)
            refusal = PageError(500, "The page has an error.", remedy=_REPORT)
        is_asked = request.method == "GET" and "authorization" not in request.headers
        if refusal.status == 401 and self._login is not None and is_asked:
            return self._login.redirect(request)
        answer = await _refusal(refusal)
        is_paused = request.query_params.get("refresh") == OFF
        if refusal.status in PASSING and request.method == "GET" and not is_paused:
            answer.headers["Refresh"] = str(answer_headers.REFRESH_SECONDS)
        return answer

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
        position = view.head.position
        if query.get("at"):
            position = await query_parameters.position(view, query, "at")
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


def _unreadable(error: StoreError, viewer: Viewer) -> PageError:
    """Return the refusal; only a viewer on this machine sees paths of this machine."""
    if isinstance(viewer, LocalViewer):
        return PageError(503, f"{error}.")
    _log.warning("projection_unreadable", reason=str(error))
    return PageError(503, "The projection cannot be read now.", remedy=_UNREADABLE)


_UNREADABLE: Final = (
    "Try again. If it stays so, ask the operator: the log of the service has the reason"
    " (projection_unreadable)."
)


def _require_method(request: Request, methods: Sequence[str]) -> None:
    """Raise PageError 405 for another method; HEAD is GET without a body."""
    method = "GET" if request.method == "HEAD" else request.method
    if method not in methods:
        raise PageError(
            405, f"{request.method} is not for {request.url.path}.", remedy=f"Use {methods[0]}."
        )


def _as_refusal(error: Exception) -> PageError | None:
    """Return an expected error as a refusal, None for a defect."""
    if isinstance(error, PageError):
        return error
    if isinstance(error, InvalidParameter):
        return _of_parameter(error)
    return _TOO_LONG if isinstance(error, TimeoutError) else None


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
        **FRAME,
        "title": page.title,
        "home": request.href(HOME),
        "logout": LOGOUT,
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
        "message": error.message,
        "remedy": error.remedy,
    }
    body = await render_frame("error.html", context)
    return Response(body, error.status, headers=error.headers, media_type="text/html")


def _of_parameter(error: InvalidParameter) -> PageError:
    return PageError(
        400,
        f"Parameter {error.parameter} = {error.value}: {error.message}.",
        remedy=f"Change {error.parameter} in the address, or leave it out.",
    )


async def _missing(request: Request) -> Response:
    """Raise PageError 404."""
    raise PageError(
        404, f"There is no page {request.url.path}.", remedy="Open the overview and follow a link."
    )


async def _to_home(request: Request) -> Response:
    return RedirectResponse(HOME, status_code=307)
