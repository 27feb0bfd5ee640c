"""The service on a log that can be read and not written: on a full disk, or at its maximum."""

import asyncio
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import msgspec
import pytest
from support.servers.nats_servers import NatsServer, settings_for
from support.servers.service_process import ServiceProcess, creation

from ledger.core.model.denials import Reason
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.log_port import Extent

pytestmark = pytest.mark.integration

VALIDATE = "/admission/validate"
REVIEWS = 20
REVIEWS_SECONDS = 60.0
"""For all of them, on a busy machine; if each waited for the log, they would take 140 s."""


def forbid_growth(server: NatsServer) -> None:
    """Let no file of a server grow, as on a full disk."""
    assert server.process is not None
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


@contextmanager
def served(store: Path, server: NatsServer, *options: str) -> Iterator[ServiceProcess]:
    """The service on a server, with the address of its monitoring."""
    service = ServiceProcess(store, f"--nats={server.url}", *options)
    service.start()
    try:
        yield service
    finally:
        service.kill()


async def post(client: httpx2.AsyncClient, name: str, padding: str = "") -> dict:
    review = creation(name)
    review["request"]["userInfo"]["username"] = f"alice{padding}"
    answer = await client.post(VALIDATE, json=review)
    assert answer.status_code == 200, answer.text
    return answer.json()["response"]


async def extent(server: NatsServer) -> Extent:
    log = await JetStreamLog.connect(settings_for(server))
    try:
        return await log.extent()
    finally:
        await log.close()


async def refused(service: ServiceProcess, reason: Reason, cause: str) -> None:
    """Check that reviews are refused without waiting and with the cause, and write nothing."""
    async with service.client() as client, asyncio.timeout(REVIEWS_SECONDS):
        for number in range(REVIEWS):
            denied = await post(client, f"refused-{number}")
            assert not denied["allowed"]
            assert denied["status"]["message"].endswith(f"[{reason}]")
            assert cause in denied["status"]["message"]


async def stays_refused(service: ServiceProcess, cause: str) -> None:
    """Look at readiness for longer than a read of the log takes: no read ends the outage."""
    for _ in range(20):
        assert cause in service.wait_for("ledger", ok=False)
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("monitored", [True, False], ids=["monitored", "not monitored"])
async def test_a_full_disk_is_named_and_refuses_at_once_until_a_record_is_stored(
    tmp_path: Path, own_server: NatsServer, monitored: bool
) -> None:
    options = [f"--nats-monitor={own_server.monitor_url}"] if monitored else []
    cause = (
        "cannot write to its disk (file too large)" if monitored else "disk of a NATS server may"
    )
    with served(tmp_path / "store", own_server, *options) as service:
        async with service.client() as client:
            assert (await post(client, "before"))["allowed"]
            last = (await extent(own_server)).last
            forbid_growth(own_server)
            first = await post(client, "first")
            assert not first["allowed"]
            assert cause in first["status"]["message"]
        await refused(service, Reason.LEDGER_UNAVAILABLE, cause)
        assert (await extent(own_server)).last == last
        await stays_refused(service, cause)
        own_server.terminate()
        await own_server.start()
        service.wait_for("ledger", ok=True)
        assert (await extent(own_server)).last == last + 1, "the probe is one record"
        async with service.client() as client:
            assert (await post(client, "after"))["allowed"]


def test_a_disk_without_space_is_named(tmp_path: Path) -> None:
    """As above on a file system that is full, where one can be mounted."""
    if subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("no user namespace can be made here: a full file system was not tried")
    asyncio.run(_on_a_full_file_system(tmp_path))


async def _on_a_full_file_system(tmp_path: Path) -> None:
    disk = tmp_path / "nats" / "data"
    disk.mkdir(parents=True)
    mount = f'mount -t tmpfs -o size=96m tmpfs {disk} && exec "$@"'
    server = NatsServer(
        tmp_path / "nats",
        prefix=("unshare", "-rm", "sh", "-c", mount, "sh"),
        jetstream="max_file_store: 64GB",
    )
    try:
        await server.start()
        monitor = f"--nats-monitor={server.monitor_url}"
        with served(tmp_path / "store", server, monitor) as service:
            async with service.client() as client:
                assert (await post(client, "before"))["allowed"]
                assert server.process is not None
                with pytest.raises(OSError, match="No space left"):
                    _fill(Path(f"/proc/{server.process.pid}/root{disk}/hog"))
                # The rest of a block that was begun may take some records.
                while (await post(client, f"p-{os.urandom(4).hex()}"))["allowed"]:
                    pass
            await refused(service, Reason.LEDGER_UNAVAILABLE, "(no space left on device)")
            await stays_refused(service, "(no space left on device)")
    finally:
        server.stop()


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as hog:
        while True:
            hog.write(bytes(65_536))


async def test_a_full_log_is_named_and_takes_records_when_its_maximum_is_raised(
    tmp_path: Path, own_server: NatsServer
) -> None:
    cause = "no room for more: raise log_bytes_max"
    with served(tmp_path / "store", own_server) as service:
        async with service.client() as client:
            assert (await post(client, "before"))["allowed"]
        log = await JetStreamLog.connect(settings_for(own_server))
        size = (await log.extent()).size
        await edit(log, size + 100)
        assert cause in service.wait_for("ledger", ok=False)
        last = (await log.extent()).last
        await refused(service, Reason.LOG_FULL, cause)
        await stays_refused(service, cause)
        assert (await log.extent()).last == last
        await edit(log, 64 * 1024**2)
        service.wait_for("ledger", ok=True)
        await log.close()
        async with service.client() as client:
            assert (await post(client, "after"))["allowed"]


async def edit(log: JetStreamLog, size_max: int) -> None:
    """Change the maximum size of the log's stream, as `nats stream edit` does."""
    answer = await log.connection.api(f"STREAM.INFO.{log.names.log}")
    whole = msgspec.json.decode(answer)["config"] | {"max_bytes": size_max}
    await log.connection.api(f"STREAM.UPDATE.{log.names.log}", whole)
