"""Page access: the viewer of a request, by loopback, proxy, bearer token or session.

This machine reads everything. Other clients read nothing until the operator sets `page` to `token`
or `login`, or names a proxy; then the API server reviews their rights as for `/v1`. Rights are
those of this cluster, so a viewer reads the data of this cluster only.
"""

from enum import StrEnum
from hashlib import sha256
from typing import Final

import msgspec
from starlette.requests import Request

from gpuledger.page.access.proxied_user import ProxySettings, proxied_user
from gpuledger.page.access.session_cookie import NAME, SessionCookies
from gpuledger.page.page_errors import PageError
from gpuledger.page.viewer import LocalViewer, Viewer
from ledger.kube.client.access_review import Subject
from ledger.runtime.http.client_certificate_access import name_of
from ledger.runtime.http.loopback_access import is_local, peer_of
from ledger.runtime.http.token_reviews import AccessRefusal, TokenGuard
from ledger.runtime.http.v1_access import token_of


class PageMode(StrEnum):
    """The clients on other machines that may read, besides those of a named proxy."""

    LOOPBACK = "loopback"
    TOKEN = "token"
    LOGIN = "login"


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The clients on other machines that may read, and the cluster whose rights are reviewed."""

    mode: PageMode
    cluster: str
    proxy: ProxySettings = ProxySettings()


class ReviewedViewer:
    """A user whose rights the API server reviews. `signs_out`: the user came by the login page."""

    def __init__(
        self,
        caller: Subject,
        guard: TokenGuard[Subject],
        *,
        cluster: str,
        key: str,
        signs_out: bool = False,
    ) -> None:
        self.name, self.key, self.cluster, self.signs_out = caller.username, key, cluster, signs_out
        self.caller = caller
        self._guard = guard

    async def may(self, verb: str, resource: str, namespace: str = "") -> bool:
        """Return whether the user has a right. Raises PageError 429, 503."""
        refusal = await self._guard.refusal_of(self.caller, verb, resource, namespace)
        if refusal is not None and refusal.status != 403:
            raise page_error(refusal)
        return refusal is None


class PageAccess:
    """Identifies the viewers of the service's pages."""

    def __init__(
        self, settings: AccessSettings, guard: TokenGuard[Subject], *, sessions: SessionCookies
    ) -> None:
        self._settings, self._guard, self._sessions = settings, guard, sessions

    async def identify(self, request: Request) -> Viewer:
        """Return the viewer of a request. Raises PageError 401, 403, 429, 503."""
        headers, settings = request.headers, self._settings
        if name_of(request.scope) in settings.proxy.subjects:
            caller = proxied_user(headers, settings.proxy)
            return self._viewer(caller, f"proxy {caller.username}")
        if is_local(request.scope, headers):
            return LocalViewer()
        if settings.mode is PageMode.LOOPBACK:
            raise PageError(403, _OFF, remedy=_TURN_ON)
        if token := token_of(headers):
            caller = await self._caller(token, request)
            return self._viewer(caller, f"token {caller.username}")
        return await self._of_session(request)

    async def _of_session(self, request: Request) -> Viewer:
        value = request.cookies.get(NAME, "") if self._settings.mode is PageMode.LOGIN else ""
        token = self._sessions.open(value) if value else ""
        if not token:
            raise PageError(401, "Sign in with a token of this cluster.", remedy=_GIVE_TOKEN)
        caller = await self._caller(token, request)
        key = f"session {sha256(value.encode()).hexdigest()}"
        return self._viewer(caller, key, signs_out=True)

    async def _caller(self, token: str, request: Request) -> Subject:
        caller = await self._guard.caller(token, peer_of(request.scope))
        if isinstance(caller, AccessRefusal):
            raise page_error(caller)
        return caller

    def _viewer(self, caller: Subject, key: str, *, signs_out: bool = False) -> ReviewedViewer:
        return ReviewedViewer(
            caller, self._guard, cluster=self._settings.cluster, key=key, signs_out=signs_out
        )


_OFF: Final = "The pages answer only the machine of the service."
_TURN_ON: Final = (
    "Use `kubectl port-forward`, or let the operator set `page` to token or login, or"
    " `page_proxy_subjects`."
)
_GIVE_TOKEN: Final = "Give a bearer token, for example of `kubectl create token`."


def page_error(refusal: AccessRefusal) -> PageError:
    """Return the error page of a refusal."""
    text = f"{refusal.error[:1].upper()}{refusal.error[1:]}."
    return PageError(refusal.status, text, remedy=_GIVE_TOKEN if refusal.status == 401 else "")
