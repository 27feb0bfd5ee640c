"""`POST /v1/fit` of a running service: the report of the command, also after further records."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from support.harness.command_line import gpuledger
from support.servers.service_process import running_service

from gpuledger.storage.open_log import open_log, writer_on
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.log.ledger_port import Accepted
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration


def held(name: str, uuid: str, memory: int) -> list[commands.AnyCommand]:
    pod = ("local/x", f"pods/{name}", name)
    part = Part("main", Phase.APP, (Share(uuid, memory, 0),))
    return [
        commands.Reserve(*pod, {"nvidia.com/gpu": 1}),
        commands.Place(*pod, "local/n1", (part,)),
    ]


CARDS = (Card("GPU-a", 0, "A100", 16_000, 100, 10), Card("GPU-b", 1, "A100", 16_000, 100, 10))
FIRST = [commands.RegisterCards("local/n1", OWN, CARDS), *held("busy", "GPU-a", 9_000)]
LATER = held("later", "GPU-b", 12_000)


def pod(memory: int) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory)}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, "spec": spec}


async def submit(store: Path, steps: list[commands.AnyCommand], *, create: bool = False) -> None:
    settings = Settings(store_dir=str(store))
    async with (
        open_log(settings, create=create) as opened,
        writer_on(settings, opened) as writer,
    ):
        for step in steps:
            assert isinstance(await writer.submit(step), Accepted)


async def fitted(client: httpx2.AsyncClient, manifest: str, position: int) -> dict[str, Any]:
    """Return the report once the cards of a position are known."""
    async with asyncio.timeout(30):
        while True:
            answer = await client.post("/v1/fit", content=manifest)
            if answer.status_code == 200 and answer.json()["position"] >= position:
                return dict(answer.json())
            assert answer.status_code in (200, 503), answer.text
            await asyncio.sleep(0.05)


async def test_service_and_command_report_the_same(tmp_path: Path) -> None:
    store = tmp_path / "store"
    await submit(store, FIRST, create=True)
    with running_service(store) as service:
        async with service.client() as client:
            before = await fitted(client, json.dumps(pod(8_000)), 3)
            assert [(node["node"], node["fits"]) for node in before["pods"][0]["nodes"]] == [
                ("n1", True)
            ]
            await submit(store, LATER)
            after = await fitted(client, yaml.safe_dump(pod(8_000)), 5)
    stdin = json.dumps(pod(8_000))
    shown = json.loads(gpuledger("fit", "-f", "-", "-o", "json", stdin=stdin, store=store).out)
    assert not shown["fits"]
    assert after == shown
