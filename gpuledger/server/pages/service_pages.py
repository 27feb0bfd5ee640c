"""Pages in the service: its projection and live ledger as their source, and who may read them."""

import secrets
from pathlib import Path
from typing import Final

from starlette.routing import BaseRoute

from gpuledger.page.access.form_tokens import FormTokens
from gpuledger.page.access.login_page import LoginPage
from gpuledger.page.access.page_access import AccessSettings, PageAccess, PageMode
from gpuledger.page.access.proxied_user import ProxySettings
from gpuledger.page.access.session_cookie import SessionCookies
from gpuledger.page.page_app import PageApp
from gpuledger.server.endpoints.live_answers import LiveAnswers
from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.server.pages.service_source import ServiceSource
from gpuledger.wiring import store_layout
from ledger.kube.client.access_review import Subject
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls.certificate_reload import Tls
from projections.store.readers import Readers

OFF: Final = "off"

READ_SECONDS: Final = 10.0
"""Deadline of reading for one page; the pages have connections of their own."""

_SECRET_BYTES: Final = 32
_PURPOSE: Final = "gpuledger pages"


class ServicePages:
    """The pages of one replica. Close them at its end."""

    def __init__(
        self,
        settings: Settings,
        *,
        replica: LedgerReplica,
        live: LiveAnswers,
        guard: TokenGuard[Subject],
        certificates: Tls | None,
    ) -> None:
        """Read the projection of the store, and review rights by `guard`.

        The secrets of sessions and forms follow from the key of `certificates`, which replicas
        share; without it, they are of this process.
        """
        own = secrets.token_bytes(_SECRET_BYTES)

        def secret() -> bytes:
            return own if certificates is None else certificates.secret(_PURPOSE)

        projection = Path(settings.store_dir) / store_layout.PROJECTION
        self._readers = Readers(projection, seconds=READ_SECONDS)
        self._routes: list[BaseRoute] = []
        if settings.page == OFF:
            return
        access = _access(settings)
        tokens = FormTokens(secret)
        sessions = SessionCookies(secret, seconds=settings.page_session_seconds)
        is_login = access.mode is PageMode.LOGIN
        self._routes = PageApp(
            self._readers,
            ServiceSource(settings, replica=replica, live=live),
            identify=PageAccess(access, guard, sessions=sessions).identify,
            tokens=tokens,
            login=LoginPage(guard, sessions=sessions, tokens=tokens) if is_login else None,
        ).routes()

    def routes(self) -> list[BaseRoute]:
        """Return the routes, none if the pages are off."""
        return self._routes

    async def close(self) -> None:
        """Close the projection."""
        await self._readers.close()


def _access(settings: Settings) -> AccessSettings:
    return AccessSettings(
        mode=PageMode(settings.page),
        cluster=settings.cluster,
        proxy=ProxySettings(
            frozenset(settings.page_proxy_subjects),
            settings.page_user_header,
            settings.page_groups_header,
        ),
    )
