"""An authenticating proxy names the user of the pages, over real TLS with its certificate."""

from collections.abc import Callable
from pathlib import Path

import aiohttp
from cryptography.x509.oid import NameOID
from starlette.applications import Starlette
from support.harness.projection_harness import log_of, project, random_payloads
from support.pages.page_harness import TOKENS, FakeSource
from support.servers.tls_server import ClientAuthority, serving_at, visitor

from gpuledger.page.access.page_access import AccessSettings, PageAccess, PageMode
from gpuledger.page.access.proxied_user import ProxySettings
from gpuledger.page.access.session_cookie import SessionCookies
from gpuledger.page.page_app import PageApp
from ledger.kube.client.access_review import Subject
from ledger.runtime.http.client_certificate_access import ClientCertificateRequired
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.tls import certificate_reload, server_certificate
from projections.store.readers import Readers

Find = Callable[[], server_certificate.CertificateFiles]
HEADERS = {"Host": "gpus.example", "X-Forwarded-User": "alice", "X-Forwarded-For": "10.0.0.9"}


class Everything:
    """Grants every right to alice, and accepts no token."""

    async def review(self, token: str) -> Subject | None:
        return None

    async def may(self, caller: Subject, verb: str, resource: str, namespace: str) -> bool:
        return caller.username == "alice"


def guarded(readers: Readers) -> ClientCertificateRequired:
    """Return the pages behind the guard of the service, with the proxy `CN=ingress`."""
    guard: TokenGuard[Subject] = TokenGuard(Everything())
    proxy = ProxySettings(frozenset({"CN=ingress"}), "X-Forwarded-User")
    settings = AccessSettings(mode=PageMode.LOOPBACK, cluster="c1", proxy=proxy)
    access = PageAccess(settings, guard, sessions=SessionCookies(lambda: b"s", seconds=60))
    app = PageApp(readers, FakeSource(), identify=access.identify, tokens=TOKENS)
    return ClientCertificateRequired(Starlette(routes=app.routes()), ["CN=kube-apiserver"])


async def test_a_proxy_names_users_by_its_certificate_and_sends_no_reviews(
    own: Find, clients: ClientAuthority, tmp_path: Path
) -> None:
    await project(tmp_path / "ledger.sqlite", log_of(random_payloads(1, 20)))
    tls = certificate_reload.Tls(own, clients.file)
    async with (
        Readers(tmp_path / "ledger.sqlite") as readers,
        serving_at(guarded(readers), tls) as address,
    ):

        async def asked(path: str, name: str) -> tuple[int, str]:
            client = clients.issue((NameOID.COMMON_NAME, name)) if name else None
            context = visitor(tmp_path, client) if client else visitor(tmp_path)
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"https://{address}{path}", ssl=context, headers=HEADERS) as answer,
            ):
                return answer.status, await answer.text()

        status, text = await asked("/page/", "ingress")
        assert (status, "alice" in text) == (200, True)
        assert (await asked("/page/", "kube-apiserver"))[0] == 403
        assert (await asked("/page/", ""))[0] == 403
        assert (await asked("/admission/validate", "ingress"))[0] == 403
