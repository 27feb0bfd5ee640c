"""Page harness: the pages over a projection, with a viewer and a source that a test chooses."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from starlette.applications import Starlette

from gpuledger.manifest_fit.fit_report import DecidedFit
from gpuledger.page.access.form_tokens import FormTokens
from gpuledger.page.page_app import PageApp
from gpuledger.page.page_errors import PageError
from gpuledger.page.page_source import LogHealth, ManifestQuestion
from gpuledger.page.viewer import LocalViewer, Viewer
from projections.queries.card_usage import CardOffers
from projections.store.readers import Readers
from webhook.gates.waiting_report import WaitingRow

TOKENS = FormTokens(lambda: b"k" * 32)


class Tenant:
    """A viewer with rights in some namespaces of one cluster; with "" in all."""

    def __init__(self, *namespaces: str, cluster: str = "c1", name: str = "tenant") -> None:
        self.namespaces, self.cluster, self.name = namespaces, cluster, name
        self.key, self.signs_out = f"user {name}", False
        self.asked: list[tuple[str, str, str]] = []

    async def may(self, verb: str, resource: str, namespace: str = "") -> bool:
        self.asked.append((verb, resource, namespace))
        return namespace in self.namespaces or "" in self.namespaces


class FakeSource:
    """A source with the answers of a test; fit is not available."""

    cluster = "c1"

    def __init__(
        self, *, waiting: Sequence[WaitingRow] | None = (), health: LogHealth | None = None
    ) -> None:
        self.rows, self.log = waiting, health or LogHealth(5, "a test")
        self.offers: CardOffers | None = None

    async def waiting(self, namespace: str) -> Sequence[WaitingRow] | None:
        if self.rows is None:
            return None
        return [row for row in self.rows if namespace in ("", row.namespace)]

    async def health(self) -> LogHealth:
        return self.log

    async def fit(self, question: ManifestQuestion) -> DecidedFit:
        raise PageError(503, "no ledger")


@asynccontextmanager
async def pages(
    path: Path, *, viewer: Viewer | None = None, source: FakeSource | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the pages over a projection file to one viewer (default: this machine)."""
    seen = viewer or LocalViewer()

    async def identify(_: object) -> Viewer:
        return seen

    async with Readers(path) as readers:
        app = PageApp(readers, source or FakeSource(), identify=identify, tokens=TOKENS)
        transport = httpx2.ASGITransport(app=Starlette(routes=app.routes()))
        async with httpx2.AsyncClient(transport=transport, base_url="http://ledger") as client:
            yield client
