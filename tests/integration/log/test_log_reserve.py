"""A log that fills up: the last tenth is for what ends, and one namespace cannot fill it alone."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from support.harness.command_line import gpuledger
from support.servers.nats_servers import NatsServer, settings_for
from support.servers.service_process import ServiceProcess, creation, running_service

from ledger.core.model.commands import Refute, Reserve
from ledger.core.model.denials import Reason
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.ledger_port import Accepted
from ledger.log.writer.writer import Writer

pytestmark = pytest.mark.integration

VALIDATE = "/admission/validate"
LOG_BYTES_MAX = 16 * 1024**2
RECORD_BYTES = 700_000


@asynccontextmanager
async def another_writer(server: NatsServer) -> AsyncIterator[Writer]:
    """A replica beside the service, which writes large records."""
    log = await JetStreamLog.connect(settings_for(server))
    nonces = (f"{number:016x}" for number in itertools.count())
    try:
        writer = Writer(log, name="other", now=lambda: 1_000_000, nonces=lambda: next(nonces))
        await writer.open()
        running = asyncio.create_task(writer.run())
        yield writer
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    finally:
        await log.close()


def reserve(number: int) -> Reserve:
    owner = "x" * RECORD_BYTES
    return Reserve(
        "local/big", f"pods/p{number}", f"uid-{number}", {"nvidia.com/gpu": 1}, owner=owner
    )


async def post(service: ServiceProcess, name: str, namespace: str = "team") -> str:
    """Create a pod; return why it was refused, or nothing."""
    async with service.client() as client:
        answer = await client.post(VALIDATE, json=creation(name, uid=name, namespace=namespace))
        assert answer.status_code == 200, answer.text
        response = answer.json()["response"]
        return "" if response["allowed"] else response["status"]["message"]


async def test_the_reserve_takes_releases_and_denies_new_objects_with_a_reason(
    tmp_path: Path, own_server: NatsServer
) -> None:
    store, nats = tmp_path / "store", f"--nats={own_server.url}"
    with running_service(store, nats, f"--log-bytes-max={LOG_BYTES_MAX}") as service:
        assert not await post(service, "before")
        async with another_writer(own_server) as writer:
            count = 0
            while isinstance(answer := await writer.submit(reserve(count)), Accepted):
                count += 1
            assert answer.reason is Reason.LOG_FULL
            assert count * RECORD_BYTES > 0.8 * LOG_BYTES_MAX
            denied = await post(service, "one-more")
            assert f"[{Reason.LOG_FULL}; " in denied
            assert "log_bytes_max" in denied
            service.wait_for("ledger", ok=True)
            assert "LogFull" in service.wait_for("log-space", ok=True)
            for number in range(count):
                refuted = Refute("local/big", f"pods/p{number}", f"uid-{number}", 0)
                assert isinstance(await writer.submit(refuted), Accepted)
        assert gpuledger("settle", "absent", "before", nats, store=store).status == 0
        assert gpuledger("holds", "-o", "json", nats, store=store).json == []
        service.wait_for("ledger", ok=True)
        assert service.stop() == 0
    with running_service(store, nats, f"--log-bytes-max={2 * LOG_BYTES_MAX}") as service:
        assert not await post(service, "one-more")


async def test_a_namespace_that_floods_the_log_is_refused_and_others_are_not(
    tmp_path: Path, own_server: NatsServer
) -> None:
    options = "--log-namespace-burst=2000000", "--log-namespace-rate=1"
    with running_service(tmp_path / "store", f"--nats={own_server.url}", *options) as service:
        assert not await post(service, "before", "big")
        async with another_writer(own_server) as writer:
            for number in range(3):
                assert isinstance(await writer.submit(reserve(number)), Accepted)
        denied = await post(service, "one-more", "big")
        assert f"[{Reason.LOG_SHARE_EXCEEDED}; " in denied
        assert "namespace local/big" in denied
        assert "log_namespace_rate" in denied
        assert not await post(service, "other", "team")
        metrics = httpx2.get(f"{service.url}/metrics", verify=service.tls()).text
        assert 'reason="LogShareExceeded"' in metrics
