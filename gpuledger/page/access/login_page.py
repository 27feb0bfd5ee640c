"""Login page: takes a token, has it reviewed, and keeps it in a sealed cookie; and its end.

The form of the login has no user yet. Its token is bound to a cookie that the page sets, so that
another site cannot sign a browser in. The `TokenGuard` limits the rate of unknown tokens.
"""

import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gpuledger.page.access.form_tokens import FormTokens
from gpuledger.page.access.page_access import page_error
from gpuledger.page.access.session_cookie import NAME, SessionCookies, TokenTooLong, set_cookie
from gpuledger.page.page_errors import PageError
from gpuledger.page.page_paths import HOME, LOGIN
from gpuledger.page.page_templates import render_frame
from gpuledger.page.serving.form_body import read_form
from gpuledger.page.viewer import Viewer
from ledger.kube.client.access_review import Subject
from ledger.runtime.http.loopback_access import peer_of
from ledger.runtime.http.token_reviews import AccessRefusal, TokenGuard
from ledger.runtime.http.v1_access import TOKEN_BYTES_MAX

FORM_COOKIE: Final = "__Host-gpuledger-login"
FORM_SECONDS: Final = 900.0
"""Time to fill in the form."""

NEXT_CHARACTERS_MAX: Final = 2_000

BYTES_MAX: Final = 32_768
"""Largest body: a token, and a path with escapes. Any client can send one on each connection."""

_BOUND_BYTES: Final = 24
_BOUND: Final = re.compile(r"[-_A-Za-z0-9]{32}")

Identify = Callable[[Request], Awaitable[Viewer]]
"""Returns the viewer of a request. Raises PageError 401, 403, 429, 503."""


class LoginPage:
    """The login and its end."""

    def __init__(
        self, guard: TokenGuard[Subject], *, sessions: SessionCookies, tokens: FormTokens
    ) -> None:
        self._guard, self._sessions, self._tokens = guard, sessions, tokens

    def redirect(self, request: Request) -> Response:
        """Lead a browser without a session to the form, and back afterwards."""
        query = f"?{request.url.query}" if request.url.query else ""
        wanted = urlencode({"next": f"{request.url.path}{query}"})
        return RedirectResponse(f"{LOGIN}?{wanted}", status_code=303)

    async def answer(self, request: Request) -> Response:
        """Return the form, or begin a session with a filled one. Raises PageError 400, 403, 413."""
        if request.method == "POST":
            return await self._signed_in(request)
        return await self._form(request, 200, "", request.query_params.get("next", ""))

    async def _signed_in(self, request: Request) -> Response:
        """Begin a session, or return the form with the reason."""
        form = await read_form(request, BYTES_MAX)
        if not self._tokens.is_valid(form.get("form_token", ""), _user(_bound(request))):
            raise PageError(
                403,
                "The form has expired, or the browser kept no cookie.",
                remedy=f"Open {LOGIN} again, by https, and allow its cookies.",
            )
        token, wanted = form.get("token", "").strip(), form.get("next", "")
        refusal = await self._refusal(token, request)
        if refusal is not None:
            return await self._form(request, refusal.status, refusal.message, wanted)
        try:
            value = self._sessions.seal(token)
        except TokenTooLong as error:
            return await self._form(request, 400, f"Not signed in: {error}.", wanted)
        answer = RedirectResponse(safe_path(wanted), status_code=303)
        answer.headers.append("Set-Cookie", set_cookie(NAME, value, self._sessions.seconds))
        answer.headers.append("Set-Cookie", set_cookie(FORM_COOKIE, "", 0))
        return answer

    async def sign_out(self, request: Request, viewer: Viewer) -> Response:
        """End a session. Raises PageError 400, 403, 413."""
        form = await read_form(request, BYTES_MAX)
        if not self._tokens.is_valid(form.get("form_token", ""), viewer.key):
            raise PageError(403, "The form has expired.", remedy="Go back and load the page again.")
        answer = RedirectResponse(LOGIN, status_code=303)
        answer.headers.append("Set-Cookie", set_cookie(NAME, "", 0))
        answer.headers["Clear-Site-Data"] = '"cache"'
        return answer

    async def _refusal(self, token: str, request: Request) -> PageError | None:
        if not token or len(token) > TOKEN_BYTES_MAX or not token.isascii():
            return PageError(400, "Give a token: letters, digits, dots, hyphens and underscores.")
        caller = await self._guard.caller(token, peer_of(request.scope))
        return page_error(caller) if isinstance(caller, AccessRefusal) else None

    async def _form(self, request: Request, status: int, problem: str, wanted: str) -> Response:
        bound = _bound(request) or secrets.token_urlsafe(_BOUND_BYTES)
        context = {
            "title": "Sign in",
            "problem": problem,
            "next": safe_path(wanted),
            "form_token": self._tokens.token(_user(bound)),
            "is_insecure": request.headers.get("x-forwarded-proto", request.url.scheme) != "https",
            "login": LOGIN,
        }
        body = await render_frame("login.html", context)
        answer = Response(body, status, media_type="text/html")
        answer.headers.append("Set-Cookie", set_cookie(FORM_COOKIE, bound, FORM_SECONDS))
        answer.headers["Cache-Control"] = "no-store"
        return answer


def safe_path(wanted: str) -> str:
    """Return a path of the pages, `HOME` for anything else, for example another site."""
    is_safe = wanted.startswith(HOME) and len(wanted) <= NEXT_CHARACTERS_MAX
    return wanted if is_safe and wanted.isprintable() and "\\" not in wanted else HOME


def _bound(request: Request) -> str:
    """Return the form's cookie as this page sets it, "" for any other value: it is sent again."""
    value = request.cookies.get(FORM_COOKIE, "")
    return value if _BOUND.fullmatch(value) else ""


def _user(bound: str) -> str:
    return f"login {bound}"
