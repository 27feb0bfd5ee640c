"""The application of a service passes the cards of watched slices to all that answer by them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.builders.decide_and_fold import record
from support.claims.kept_slices import NVIDIA, kept
from support.harness.projection_harness import log_of, project

from gpuledger.server.cluster_tasks import ClusterTasks
from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.server.service_app import ServiceApp
from gpuledger.wiring import log_from_settings, store_layout
from ledger.core.model.cards import OWN, Card
from ledger.core.model.commands import RegisterCards
from ledger.core.model.state import State
from ledger.kube.api.cluster_ports import Listed
from ledger.runtime.http.health import Health
from ledger.runtime.metrics import Telemetry
from ledger.runtime.settings.settings import Settings
from ledger.runtime.writer_metrics import WriterMetrics

CARDS = tuple(Card(f"GPU-{at}", at, "T4", 16_000, 100, 10) for at in range(2))


@pytest.fixture
async def application(tmp_path: Path) -> AsyncIterator[ServiceApp]:
    """An application whose projection has a node with two cards; one of them is in a slice."""
    settings = Settings(cluster="c1", store_dir=str(tmp_path), extender=True)
    payload = record(State(), [RegisterCards("c1/n1", OWN, CARDS)])
    assert payload is not None
    await project(tmp_path / store_layout.PROJECTION, log_of([payload]))
    telemetry, servers = Telemetry(), log_from_settings.LogServers((), "", "", ())
    replica = LedgerReplica(settings, servers, observer=WriterMetrics(telemetry))
    client: Any = None  # nothing is asked of the API server
    cluster_tasks = ClusterTasks(settings, client, replica=replica, count=telemetry.count)
    made = ServiceApp(
        settings,
        replica=replica,
        cluster_tasks=cluster_tasks,
        telemetry=telemetry,
        health=Health(),
        certificates=None,
    )
    cluster_tasks.context.resource_claims.slices.take(Listed(1, [kept("a", "GPU-0")]))
    yield made
    await made.close()


async def test_cards_of_slices_reach_all_answers(application: ServiceApp) -> None:
    transport = httpx2.ASGITransport(application.app, client=("127.0.0.1", 4711))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        rows = (await client.get("/v1/cards")).json()
        page = await client.get("/page/cards")
    assert [row["driver"] for row in rows] == [NVIDIA, ""]
    assert page.text.count("<strong>DRA</strong>") == 1
    extender, fitted = application.service_extender, application._live.fit._offers
    assert extender is not None
    assert extender.inventory._offered.of("n1") == {"GPU-0"}
    assert fitted is not None
    assert fitted.is_listed()
    *_, last = fitted.unsent.messages("the follower")
    assert [(offer.node, offer.uuids) for offer in last.offers] == [("n1", ["GPU-0"])]
