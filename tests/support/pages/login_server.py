"""Login server: the pages of a projection on loopback, for clients that have to sign in.

Reviews of tokens are answered by `TeamReviewer` instead of an API server. Requests count as those
of another machine because of the header that a proxy sets (`FROM_AFAR`).
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from support.pages.page_harness import FakeSource

from gpuledger.page.access.form_tokens import FormTokens
from gpuledger.page.access.login_page import LoginPage
from gpuledger.page.access.page_access import AccessSettings, PageAccess, PageMode
from gpuledger.page.access.session_cookie import SessionCookies
from gpuledger.page.page_app import PageApp
from ledger.kube.client.access_review import Subject
from ledger.runtime.http import http_server
from ledger.runtime.http.http_server import Listener
from ledger.runtime.http.token_reviews import TokenGuard
from projections.store.readers import Readers

FROM_AFAR: Final = {"x-forwarded-for": "192.0.2.7", "x-forwarded-proto": "https"}
SECONDS: Final = 20.0
SESSION_SECONDS: Final = 3_600.0


class TeamReviewer:
    """Accepts tokens `t-NAMESPACE`, whose users may read that namespace, and `t-all`."""

    async def review(self, token: str) -> Subject | None:
        name = token.removeprefix("t-")
        return Subject(f"reader-of-{name}") if token.startswith("t-") else None

    async def may(self, caller: Subject, verb: str, resource: str, namespace: str) -> bool:
        return caller.username in (f"reader-of-{namespace}", "reader-of-all")


@contextmanager
def login_server(path: Path, source: FakeSource, cluster: str) -> Iterator[str]:
    """Serve a projection file to users of one cluster for the block; yields the origin."""
    listener = http_server.bind("127.0.0.1:0")
    started, end = threading.Event(), threading.Event()
    work = _serve(path, source, cluster, listener, started, end)
    thread = threading.Thread(target=asyncio.run, args=(work,))
    thread.start()
    try:
        assert started.wait(SECONDS), "the login server did not start"
        # By this name browsers keep cookies that are for TLS only.
        yield f"http://localhost:{listener.address.rpartition(':')[2]}"
    finally:
        end.set()
        thread.join(SECONDS)


async def _serve(
    path: Path,
    source: FakeSource,
    cluster: str,
    listener: Listener,
    started: threading.Event,
    end: threading.Event,
) -> None:
    guard, tokens = TokenGuard(TeamReviewer()), FormTokens(_secret)
    sessions = SessionCookies(_secret, seconds=SESSION_SECONDS)
    settings = AccessSettings(mode=PageMode.LOGIN, cluster=cluster)
    access = PageAccess(settings, guard, sessions=sessions)
    login = LoginPage(guard, sessions=sessions, tokens=tokens)
    async with Readers(path) as readers:
        pages = PageApp(readers, source, identify=access.identify, tokens=tokens, login=login)
        stop = asyncio.Event()
        serving = asyncio.create_task(
            http_server.serve(Starlette(routes=pages.routes()), listener, stop, started=started.set)
        )
        await asyncio.to_thread(end.wait)
        stop.set()
        await serving


def _secret() -> bytes:
    return b"s" * 32
